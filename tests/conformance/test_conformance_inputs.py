"""A table as the input of another pipeline: its version, and its rows at a version, through Spark."""

from __future__ import annotations

import json
import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from conformance.bench import Bench
from conformance.orders import UPSERT
from oracle import Row, canonical
from tallymark.errors import InputMoved
from tallymark.model.settings import MergeSettings, Strategy

pytestmark = pytest.mark.slow_on("delta", "duckdb")

COLUMNS = {
    "id": "bigint",
    "a_tiny": "tinyint",
    "a_small": "smallint",
    "an_int": "int",
    "a_float": "float",
    "a_double": "double",
    "a_decimal": "decimal(38,10)",
    "a_price": "decimal(12,2)",
    "größe-2": "string",
    "select": "boolean",
    "a_day": "date",
    "a_time": "timestamp",
    "a_wall": "timestamp_ntz",
    "some_bytes": "binary",
    "s": "struct<a:bigint,b:array<string>>",
    "m": "map<string,int>",
}
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
NESTED = ("s", "m")
ROWS: list[Row] = [
    {
        "id": 1,
        "a_tiny": -128,
        "a_small": 32767,
        "an_int": -(2**31),
        "a_float": 0.5,
        "a_double": 0.1,
        "a_decimal": Decimal("1234567890123456789012345678.0000000001"),
        "a_price": Decimal("-0.05"),
        "größe-2": "tab\t new\n back\\slash \\N 'quote' \"double\" 🙂",
        "select": True,
        "a_day": date(1, 1, 1),
        "a_time": datetime(2026, 11, 1, 10, 15, 0, 123456),
        "a_wall": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "some_bytes": b"\x00\xff\\x",
        "s": {"a": 5, "b": ["x", None]},
        "m": {"a": 1},
    },
    {
        "id": 2**63 - 1,
        "a_tiny": 127,
        "a_small": 0,
        "an_int": 7,
        "a_float": float("inf"),
        "a_double": float("nan"),
        "a_decimal": Decimal("0E-10"),
        "a_price": Decimal("9999999999.99"),
        "größe-2": "",
        "select": False,
        "a_day": date(9999, 12, 31),
        "a_time": datetime(1969, 12, 31, 23, 59, 59, 999999),
        "a_wall": datetime(1, 1, 1),
        "some_bytes": b"",
        "s": {"a": None, "b": []},
        "m": {},
    },
    {"id": 3},
]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rows may lie while they are read."""
    folder = tmp_path / "scratch {1} *"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.core("place", "settings")
def test_a_table_is_read_at_its_version_with_every_type(
    bench: Bench, spark: SparkSession, scratch: Path
) -> None:
    destination, table = bench.destination, bench.table
    assert destination.table(table).input_version() is None
    bench.load(UPSERT, SCHEMA, ROWS)
    first = destination.table(table).input_version()
    assert first is not None
    assert first == destination.table(table).input_version()
    assert types_read(bench, first, spark) == {name: expected_type(bench, name) for name in COLUMNS}
    assert canonical(rows_read(bench, first, spark)) == canonical(ROWS)
    assert first == destination.table(table).input_version(), "reading is no change"

    bench.load(UPSERT, "id bigint, extra string", [{"id": 3, "extra": "x"}])
    second = destination.table(table).input_version()
    assert second not in (None, first)
    assert canonical(rows_read(bench, second or "", spark)) == canonical([*ROWS[:2], {"id": 3, "extra": "x"}])
    if destination.capabilities.time_travel:
        assert canonical(rows_read(bench, first, spark)) == canonical(ROWS)
    else:
        with pytest.raises(InputMoved) as caught:
            rows_read(bench, first, spark)
        assert caught.value.facts == {"table": table, "wanted": first, "found": second}
    assert list(scratch.iterdir()) == []


def test_a_version_that_never_was_is_refused(bench: Bench, spark: SparkSession) -> None:
    with pytest.raises(InputMoved, match="no longer exists") as caught:
        rows_read(bench, "1-0123456789ab", spark)
    assert caught.value.facts["found"] is None
    settings = MergeSettings(Strategy.APPEND_ONLY)
    bench.load(settings, "id bigint", [])
    version = bench.target.input_version() or ""
    assert rows_read(bench, version, spark) == []
    for other in (version[:-1] + ("0" if version[-1] != "0" else "1"), "99-0123456789ab", "rows-0123", ""):
        with pytest.raises(InputMoved, match=version):
            rows_read(bench, other, spark)


def expected_type(bench: Bench, name: str) -> str:
    """What a destination cannot hold as it is comes back as that which it held instead."""
    stored = bench.destination.column_type(COLUMNS[name])
    return "string" if stored == "json" else stored


def types_read(bench: Bench, version: str, spark: SparkSession) -> dict[str, str]:
    with bench.target.read(version, spark) as frame:
        schema: StructType = frame.schema
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def rows_read(bench: Bench, version: str, spark: SparkSession) -> list[Row]:
    with bench.target.read(version, spark) as frame:
        rows = [row.asDict(recursive=True) for row in frame.collect()]
    if not bench.destination.capabilities.nested_types:
        for row in rows:
            row.update({name: json.loads(row[name]) for name in NESTED if row.get(name) is not None})
    return [{name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.items()} for row in rows]
