"""Every example of docs/reference/strategies.md does what it says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tallymark as tm
from docs.strategy_examples import Example, Rows, examples
from tallymark.model.settings import Strategy
from tallymark.spark.frames import local_frame

TABLE = "t"
TIME_OF_THE_LOAD = "(load)"
FOUND = examples()


def test_every_strategy_has_an_example() -> None:
    assert {example.settings["merge_strategy"] for example in FOUND} == set(Strategy)


def test_every_load_of_an_example_says_what_comes_out() -> None:
    silent = [e.name for e in FOUND for load in e.loads if not load.refused and load.counts is None]
    assert silent == []
    assert [e.name for e in FOUND if not e.loads or e.loads[-1].after is None] == []


@pytest.mark.slow
@pytest.mark.parametrize("example", FOUND, ids=lambda example: example.name)
def test_example_does_what_it_says(example: Example, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    place = {"type": "sqlite", "path": str(path)}
    if example.before is not None:
        tm.merge(_frame(spark, example.before), TABLE, destination=place, strategy="append_only")
    for load in example.loads:
        started = datetime.now(UTC)
        batch, options = _frame(spark, load.batch), _options(example.settings)
        if load.refused:
            with pytest.raises(tm.TallymarkError) as refusal:
                tm.merge(batch, TABLE, destination=place, **options)
            assert refusal.value.code == load.refused
        else:
            receipt = tm.merge(batch, TABLE, destination=place, **options)
            assert {n: c for n, c in receipt.counts.as_dict().items() if c} == {
                n: c for n, c in (load.counts or {}).items() if c
            }
        if load.after is not None:
            assert _sorted(_stored(path, load.after.types, started)) == _sorted(_expected(load.after))


def _options(settings: dict[str, Any]) -> dict[str, Any]:
    """As config.yaml has them, as the library takes them."""
    given = dict(settings)
    guards = given.pop("guards", {})
    return {"strategy": given.pop("merge_strategy"), **given, **guards}


def _frame(spark: SparkSession, rows: Rows) -> DataFrame:
    names = list(rows.types)
    texts = local_frame(
        spark, [tuple(row) for row in rows.cells], ", ".join(f"`{name}` string" for name in names)
    )
    return texts.select(*(F.col(f"`{name}`").cast(rows.types[name]).alias(name) for name in names))


def _stored(path: Path, types: dict[str, str], started: datetime) -> list[tuple[object, ...]]:
    """What is in the file, read past Tallymark; every column that the table has must be in the example."""
    with sqlite3.connect(path) as connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({TABLE})")]
        assert sorted(names) == sorted(types)
        rows = connection.execute(f"SELECT {', '.join(types)} FROM {TABLE}").fetchall()
    connection.close()
    return [tuple(_dated(value, started) for value in row) for row in rows]


def _dated(value: object, started: datetime) -> object:
    if isinstance(value, str) and value.endswith("+00:00"):
        return TIME_OF_THE_LOAD if datetime.fromisoformat(value) >= started else value
    return value


_KEPT_AS: dict[str, Callable[[str], object]] = {
    "bigint": int,
    "int": int,
    "boolean": lambda cell: int(cell == "true"),
    "double": lambda cell: cell if cell == "NaN" else float(cell),
    "timestamp": lambda cell: cell if cell == TIME_OF_THE_LOAD else f"{cell}.000000+00:00",
    "timestamp_ntz": lambda cell: f"{cell}.000000",
}


def _expected(rows: Rows) -> list[tuple[object, ...]]:
    kept = [_KEPT_AS.get(type_, str) for type_ in rows.types.values()]
    return [
        tuple(None if cell is None else as_kept(cell) for cell, as_kept in zip(row, kept, strict=True))
        for row in rows.cells
    ]


def _sorted(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=repr)
