from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tallymark.checks.conform import Conformed
from tallymark.checks.split import KeySpread, bad_rows, split
from tallymark.config.pipeline_file import ColumnConfig, QuarantineConfig
from tallymark.errors import TooManyBadRows
from tallymark.model.batch import SourceFile
from tallymark.model.plan import KeyRange
from tallymark.model.table import Column

LENIENT = QuarantineConfig(max_fraction=1.0, max_rows=1_000_000)
ID = ColumnConfig(name="id", type="bigint")


@pytest.fixture
def two_files(
    tmp_path: Path,
    csv_source: Callable[..., DataFrame],
    source_files: Callable[..., list[SourceFile]],
    conformed: Callable[..., Conformed],
) -> tuple[Conformed, list[SourceFile], dict[str, list[int]]]:
    """A good file and one of several splits, with bad rows at both ends and between."""
    good, mixed = tmp_path / "a good.csv", tmp_path / "b.csv"
    good.write_text("".join(f"{n},x\n" for n in range(1, 301)))
    bad = {"not a bigint": [1, 250, 777, 1000], "malformed record": [500]}
    lines = [f"{n},{'y' * (n % 7)}" for n in range(1, 1001)]
    for n in bad["not a bigint"]:
        lines[n - 1] = f"bad{n},y"
    lines[499] = "500,y,z,too many"
    mixed.write_text("\n".join(lines) + "\n")
    frame = csv_source([good, mixed], "id string, note string")
    assert frame.select("_tm_file", "_tm_block").distinct().count() > 5
    return conformed(frame, ID, unique_key=["id"]), source_files([good, mixed]), bad


def test_rows_are_split_and_counted(
    two_files: tuple[Conformed, list[SourceFile], dict[str, list[int]]],
) -> None:
    made, files, _ = two_files
    with split(made, LENIENT, files) as checked:
        assert (checked.total, checked.rejected, checked.per_file) == (1300, 5, {1: (1000, 5)})
        assert checked.good.columns == [
            *("id", "note", "_source_file_hash", "_source_file", "_tm_file", "_tm_block", "_tm_row")
        ]
        assert checked.good.count() == 1295
        assert checked.good.agg({"id": "sum"}).collect()[0][0] == 45150 + 500500 - 1 - 250 - 777 - 1000 - 500
        assert checked.bad.count() == 5
        made.frame.unpersist()  # as anybody can who clears the cache of the same Spark
        assert checked.good.agg({"id": "sum"}).collect()[0][0] == 45150 + 500500 - 1 - 250 - 777 - 1000 - 500


def test_positions_are_those_in_the_file_across_splits(
    two_files: tuple[Conformed, list[SourceFile], dict[str, list[int]]],
) -> None:
    made, files, bad = two_files
    with split(made, LENIENT, files) as checked:
        found = bad_rows(checked, 10)
        assert [row.row for row in bad_rows(checked, 2)] == [1, 250]
    assert [row.row for row in found] == [1, 250, 500, 777, 1000]
    for reason, rows in bad.items():
        assert [row.row for row in found if row.reason == reason] == rows
    assert {row.file.rsplit("/", 1)[1] for row in found} == {"b.csv"}
    assert found[0].raw == '{"id":"bad1","note":"y"}'
    assert found[2].raw == "500,y,z,too many"


def test_the_cache_is_freed_even_when_the_load_fails(
    two_files: tuple[Conformed, list[SourceFile], dict[str, list[int]]],
) -> None:
    made, files, _ = two_files
    with pytest.raises(RuntimeError), split(made, LENIENT, files):
        assert made.frame.is_cached
        raise RuntimeError
    assert not made.frame.is_cached


@pytest.mark.parametrize(
    ("limits", "named", "blames"),
    [
        (QuarantineConfig(max_fraction=0.0039, max_rows=100), "max_fraction 0.0039", True),
        (QuarantineConfig(max_fraction=0.0, max_rows=0), "max_rows 0", True),
        (QuarantineConfig(max_fraction=0.5, max_rows=4), "max_rows 4", False),
    ],
)
def test_too_many_bad_rows_stop_the_batch(
    limits: QuarantineConfig,
    named: str,
    blames: bool,
    two_files: tuple[Conformed, list[SourceFile], dict[str, list[int]]],
) -> None:
    made, files, _ = two_files
    # max_fraction of the batch is 5 / 1300 = 0.00385
    if named == "max_fraction 0.0039":
        with split(made, limits, files):
            pass
        limits = limits.model_copy(update={"max_fraction": 0.0038})
        named = "max_fraction 0.0038"
    with pytest.raises(TooManyBadRows) as caught, split(made, limits, files):
        pytest.fail("the batch must not go on")
    error = caught.value
    assert error.facts["blamed"] == ([files[1].path] if blames else [])
    assert "5 of 1,300 rows" in error.message and named in error.message
    assert "b.csv row 250: id: not a bigint: 'bad250'" in error.message
    assert "columns" in error.hint and "quarantine.max_fraction" in error.hint
    assert not made.frame.is_cached


def test_long_values_are_cut_in_the_message(
    spark: SparkSession, conformed: Callable[..., Conformed], source: Callable[..., DataFrame]
) -> None:
    made = conformed(source(spark.sql("SELECT repeat('x', 1000000) AS id")), ID)
    with pytest.raises(TooManyBadRows) as caught, split(made, QuarantineConfig(), []):
        pass
    assert len(str(caught.value)) < 1000


def test_an_empty_batch_has_nothing_bad(
    spark: SparkSession, conformed: Callable[..., Conformed], source: Callable[..., DataFrame]
) -> None:
    made = conformed(source(spark.sql("SELECT 'x' AS id WHERE false")), ID, unique_key=["id"])
    with split(made, QuarantineConfig(max_fraction=0, max_rows=0), []) as checked:
        assert (checked.total, checked.rejected, checked.per_file) == (0, 0, {})
        assert bad_rows(checked, 5) == []
        assert checked.good.collect() == []


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
