"""What the rows of a change feed must hold depends on what each of them does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from tallymark.checks.conform import PROBLEMS, Conformed, FeedRules
from tallymark.config.pipeline_file import ColumnConfig, PipelineConfig
from tallymark.errors import CheckError
from tallymark.model.plan import ROW_ORDER
from tallymark.model.table import Column, TableShape
from tallymark.spark.frames import local_frame

Source = Callable[..., DataFrame]
Conform = Callable[..., Conformed]
SCHEMA = "id string, op string, lsn string, name string"


def feed(**cdc: object) -> FeedRules:
    config = PipelineConfig.model_validate(
        {
            "source": {"files": "x"},
            "merge_strategy": "cdc",
            "unique_key": "id",
            "scd_effective_from": cdc.pop("effective_from", None),
            "cdc": {"sequence_by": "lsn", "operations": {"truncate": ["T"]}, **cdc},
        }
    )
    made = FeedRules.of(config.merge_settings())
    assert made is not None
    return made


def reasons(made: Conformed) -> list[list[tuple[str, str]]]:
    rows = made.frame.orderBy(ROW_ORDER).collect()
    return [[(problem["column"], problem["reason"]) for problem in row[PROBLEMS]] for row in rows]


def test_other_strategies_are_no_feed() -> None:
    config = PipelineConfig.model_validate({"source": {"files": "x"}, "cdc": {}})
    assert FeedRules.of(config.merge_settings()) is None


def test_each_operation_needs_its_own(spark: SparkSession, source: Source, conformed: Conform) -> None:
    rows: list[tuple[object, ...]] = [
        ("1", "I", "1", "x"),
        ("1", " update ", "2", None),
        ("1", "d", "3", None),
        (None, "D", "4", None),
        (None, "t", "5", None),
        ("1", "T", None, None),
        (None, "c", "6", "x"),
    ]
    made = conformed(
        source(local_frame(spark, rows, SCHEMA)),
        ColumnConfig(name="lsn", type="bigint"),
        ColumnConfig(name="name", required=True),
        unique_key=["id"],
        feed=feed(),
    )
    assert reasons(made) == [
        [],
        [("name", "required value is missing")],
        [],
        [("id", "null key")],
        [],
        [("lsn", "null sequence")],
        [("id", "null key")],
    ]


def test_unknown_operations_are_told_as_they_are(
    spark: SparkSession, source: Source, conformed: Conform
) -> None:
    rows: list[tuple[object, ...]] = [("1", "X ", "1", None), ("1", None, "2", None), (None, "", None, None)]
    made = conformed(source(local_frame(spark, rows, SCHEMA)), unique_key=["id"], feed=feed())
    assert reasons(made) == [
        [("op", "unknown operation 'X '")],
        [("op", "null operation")],
        [("id", "null key"), ("op", "unknown operation ''"), ("lsn", "null sequence")],
    ]


def test_codes_may_be_numbers(spark: SparkSession, source: Source, conformed: Conform) -> None:
    numbers = feed(operations={"insert": ["2"], "update": ["4"], "delete": ["1"]})
    frame = local_frame(spark, [(1, 2, 1), (1, 3, 2)], "id int, op int, lsn int")
    assert reasons(conformed(source(frame), unique_key=["id"], feed=numbers)) == [
        [],
        [("op", "unknown operation '3'")],
    ]


def test_a_history_needs_the_time_of_every_change(
    spark: SparkSession, source: Source, conformed: Conform
) -> None:
    dated = feed(history="scd2", effective_from="name")
    frame = local_frame(spark, [("1", "d", "1", None)], SCHEMA)
    made = conformed(source(frame), unique_key=["id"], feed=dated)
    assert reasons(made) == [[("name", "null effective time")]]


@pytest.mark.parametrize("missing", ["op", "lsn", "id"])
def test_the_columns_of_a_feed_must_be_there(
    spark: SparkSession, source: Source, conformed: Conform, missing: str
) -> None:
    frame = local_frame(spark, [("1", "d", "1", None)], SCHEMA).drop(missing)
    with pytest.raises(CheckError, match=f"column {missing} is required"):
        conformed(source(frame), unique_key=["id"], feed=feed())


def test_an_empty_file_is_a_feed_without_changes(
    spark: SparkSession, source: Source, conformed: Conform
) -> None:
    table = TableShape((Column("id", "bigint"), Column("lsn", "bigint")), version="1")
    nothing = source(local_frame(spark, [], "x int").drop("x"))
    made = conformed(nothing, table=table, unique_key=["id"], feed=feed())
    assert set(made.columns) == {Column("id", "bigint"), Column("lsn", "bigint"), Column("op", "string")}
