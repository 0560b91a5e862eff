"""Change feeds and histories through the whole flow, on a database that starts at once."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tallymark as tm


def record(op: str, before: Any, after: Any, lsn: int) -> str:
    return json.dumps({"payload": {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}})


def merge(tmp_path: Path, spark: SparkSession, *lines: str) -> tm.Receipt:
    (tmp_path / "in.ndjson").write_text("".join(f"{line}\n" for line in lines))
    return tm.merge(
        tmp_path / "in.ndjson",
        "customers",
        strategy="cdc",
        unique_key="id",
        cdc={"envelope": "debezium", "sequence_by": ["source.lsn"]},
        destination={"type": "sqlite", "path": str(tmp_path / "shop.db")},
        spark=spark,
    )


def test_an_envelope_becomes_rows_and_a_changed_key_moves(tmp_path: Path, spark: SparkSession) -> None:
    receipt = merge(
        tmp_path,
        spark,
        '{"payload": null}',
        record("c", None, {"id": 1, "n": "a"}, 1),
        record("c", None, {"id": 2, "n": "b"}, 2),
        record("u", {"id": 2, "n": "b"}, {"id": 3, "n": "b"}, 3),
    )
    assert (receipt.total, receipt.inserted, receipt.closed) == (4, 2, 0)
    with sqlite3.connect(tmp_path / "shop.db") as db:
        assert db.execute("SELECT id, n, lsn FROM customers ORDER BY id").fetchall() == [
            (1, "a", 1),
            (3, "b", 3),
        ]


def test_a_bad_event_is_told_by_its_place_in_the_file(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(tm.TallymarkError, match=r"in\.ndjson row 3: op: unknown operation 'x'"):
        merge(
            tmp_path,
            spark,
            '{"payload": null}',
            record("u", {"id": 1}, {"id": 2}, 1),
            record("x", None, {"id": 2}, 2),
        )


def test_arguments_that_make_no_sense_together() -> None:
    with pytest.raises(tm.TallymarkError, match="cdc: applies only to merge_strategy cdc"):
        tm.merge("x.csv", "t", unique_key="id", cdc={})
