"""What other tools are known to get wrong, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tallymark as tm
from conformance.bench import Bench
from conformance.orders import (
    BY_TIME,
    CDC,
    DAY1,
    DELETE_INSERT,
    FEED,
    FULL_MERGE,
    ORDERS,
    SNAPSHOT,
    UPDATE,
    UPSERT,
    event,
    order,
)
from oracle import canonical
from tallymark.errors import ConfigError
from tallymark.model.receipt import Counts

pytestmark = pytest.mark.slow_on("delta", "duckdb")


def test_a_snapshot_with_a_null_partition_keeps_the_rest_of_the_table(bench: Bench) -> None:
    bench.load(SNAPSHOT, ORDERS, [order(1, "a"), order(2, None), order(3, "b")])
    assert bench.load(SNAPSHOT, ORDERS, [order(9, None)]) == Counts(inserted=1, deleted=1, total=1)
    assert canonical(bench.rows()) == canonical([order(1, "a"), order(9, None), order(3, "b")])


def test_reordered_columns_do_not_misalign(bench: Bench) -> None:
    bench.load(UPSERT, "id bigint, first string, last string", [{"id": 1, "first": "f", "last": "l"}])
    rows = [{"id": 1, "first": "f", "last": "l"}, {"id": 2, "first": "g", "last": "m"}]
    counts = bench.load(UPSERT, "last string, id bigint, first string", rows)
    assert (counts.inserted, counts.unchanged) == (1, 1)
    assert canonical(bench.rows()) == canonical(rows)


def test_a_delete_and_an_insert_of_a_key_within_one_batch(bench: Bench) -> None:
    bench.load(CDC, FEED, [event("i", 1, "a", day=1)])
    batch = [event("d", 1, day=2), event("i", 1, "b", day=3), event("i", 2, day=1), event("d", 2, day=2)]
    assert bench.load(CDC, FEED, batch) == Counts(updated=1, skipped=3, total=4)
    assert canonical(bench.rows()) == canonical([order(1, "b", day=3)])


def test_delete_insert_by_a_composite_key_leaves_unmatched_rows_alone(bench: Bench) -> None:
    bench.load(DELETE_INSERT, ORDERS, [order(1, "a"), order(1, "b"), order(2, "a")])
    counts = bench.load(DELETE_INSERT, ORDERS, [order(1, "a", "5.00"), order(2, "b")])
    assert counts == Counts(inserted=2, deleted=1, total=2)
    after = [order(1, "a", "5.00"), order(1, "b"), order(2, "a"), order(2, "b")]
    assert canonical(bench.rows()) == canonical(after)


def test_scd2_with_an_unchanged_row_writes_nothing(bench: Bench) -> None:
    bench.load(BY_TIME, ORDERS, DAY1)
    before = canonical(bench.rows())
    assert bench.load(BY_TIME, ORDERS, [order(1), order(2, day=4)]) == Counts(unchanged=2, total=2)
    assert canonical(bench.rows()) == before
    assert bench.commits[-1].method == "skip"


def test_an_update_of_an_empty_table(bench: Bench) -> None:
    assert bench.load(UPDATE, ORDERS, DAY1) == Counts(skipped=3, total=3)
    assert bench.load(UPDATE, ORDERS, DAY1) == Counts(skipped=3, total=3)
    assert bench.rows() == []


def test_a_full_merge_of_an_empty_batch(bench: Bench) -> None:
    bench.load(FULL_MERGE, ORDERS, DAY1)
    assert bench.load(FULL_MERGE, ORDERS, []) == Counts(deleted=3)
    assert bench.rows() == []


def test_a_delete_that_arrives_before_its_insert(bench: Bench) -> None:
    bench.load(CDC, FEED, [event("d", 1, day=5), event("i", 2, day=1)])
    assert bench.load(CDC, FEED, [event("i", 1, day=2)]) == Counts(skipped=1, total=1)
    assert bench.load(CDC, FEED, [event("i", 1, "again", day=6)]) == Counts(inserted=1, total=1)
    assert canonical(bench.rows()) == canonical([order(2), order(1, "again", day=6)])


# Through the library: what the checks before a plan decide

EMBEDDED = ["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("delta", "duckdb"))]


def place(kind: str, folder: Path) -> tuple[str, dict[str, Any]]:
    if kind == "delta":
        return str(folder / "t"), {}
    return "t", {"destination": {"type": kind, "path": str(folder / "shop.db")}}


@pytest.mark.parametrize("kind", EMBEDDED)
def test_int32_keys_of_the_table_match_int64_keys_of_the_source(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    table, options = place(kind, tmp_path)
    first = spark.sql("SELECT CAST(id AS INT) AS id, 'a' AS name FROM range(3)")
    tm.merge(first, table, unique_key="id", **options)
    wider = spark.sql("SELECT CAST(id AS BIGINT) AS id, 'b' AS name FROM range(1, 4)")
    receipt = tm.merge(wider, table, unique_key="id", **options)
    assert (receipt.inserted, receipt.updated) == (1, 2)


@pytest.mark.parametrize("kind", EMBEDDED)
def test_a_typo_in_the_strategy_name_overwrites_nothing(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    table, options = place(kind, tmp_path)
    frame = spark.sql("SELECT 1 AS id")
    tm.merge(frame, table, unique_key="id", **options)
    with pytest.raises(ConfigError, match="upsrt") as caught:
        tm.merge(spark.sql("SELECT 2 AS id"), table, strategy="upsrt", unique_key="id", **options)
    assert "did you mean upsert" in caught.value.hint
    again = tm.merge(frame, table, unique_key="id", **options)
    assert (again.unchanged, again.deleted) == (1, 0)
