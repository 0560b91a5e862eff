from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from tallymark.checks.ranges import KeySpread
from tallymark.model.plan import KeyRange
from tallymark.model.table import Column

VALUES = {
    "bigint": ["-9223372036854775808", "0L", "9223372036854775807"],
    "tinyint": ["-128Y", "127Y"],
    "date": ["DATE '0001-01-01'", "DATE '2026-11-01'", "make_date(30000, 1, 1)"],
    "timestamp": [
        "TIMESTAMP '0001-01-01T00:00:00.000001Z'",
        "TIMESTAMP '2026-03-29T01:30:00.123456Z'",
        "timestamp_micros(9223372036854775806)",
    ],
    "string": ["''", "'a'", "'o''brien'", "'x\\\\y'", "'\U0001d11e'", "'ü'", "'\\u0000'"],
}


def spread(spark: SparkSession, kind: str, values: list[str]) -> tuple[KeyRange, ...]:
    """In two groups, as two files of a batch would come."""
    keys = KeySpread.of(["K"], [Column("k", kind)])
    rows = " UNION ALL ".join(f"SELECT CAST({v} AS {kind}) AS k, {i % 2} AS f" for i, v in enumerate(values))
    query = f"SELECT f, {', '.join(keys.aggregates())} FROM ({rows}) GROUP BY f"
    return keys.ranges(spark.sql(query).collect())


@pytest.mark.parametrize("kind", VALUES)
def test_every_key_is_in_its_range(spark: SparkSession, kind: str) -> None:
    [found] = spread(spark, kind, VALUES[kind])
    inside = [f"CAST({value} AS {kind}) BETWEEN {found.low} AND {found.high}" for value in VALUES[kind]]
    tight = [f"CAST({value} AS {kind}) IN ({found.low}, {found.high})" for value in VALUES[kind]]
    answers = spark.sql(f"SELECT {', '.join(inside + tight)}").collect()[0]
    assert all(answers[: len(inside)])
    if kind not in ("bigint", "tinyint"):
        assert sum(answers[len(inside) :]) == 2  # no wider than it must be


@pytest.mark.parametrize(
    ("keys", "low", "high"),
    [((17, 229_999), 0, 229_376 + 16_384), ((4, 239_999), 0, 245_760), ((5, 5), 5, 5), ((-3, 4), -3, 4)],
)
def test_numbers_are_rounded_so_that_loads_have_ranges_in_common(
    keys: tuple[int, int], low: int, high: int
) -> None:
    found = KeySpread.of(["k"], [Column("k", "bigint")]).ranges([Row(_tm_min_0=keys[0], _tm_max_0=keys[1])])
    assert found == (KeyRange("k", f"{low}L", f"{high}L"),)


def test_kinds_without_one_order_for_all_have_no_range() -> None:
    columns = [Column("a", "double"), Column("b", "struct<x:int>"), Column("c", "timestamp_ntz")]
    assert KeySpread.of(["a", "b", "c"], columns) == KeySpread(())


def test_a_batch_without_keys_has_no_range() -> None:
    keys = KeySpread.of(["k"], [Column("k", "bigint")])
    assert keys.ranges([]) == ()
    assert keys.ranges([Row(_tm_min_0=None, _tm_max_0=None)]) == ()


def test_long_texts_are_not_worth_it() -> None:
    keys = KeySpread.of(["k"], [Column("k", "string")])
    assert keys.ranges([Row(_tm_min_0="a", _tm_max_0="b" * 500)]) == ()
