"""Frames as sources give them, and short ways to look at what the checks made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tallymark.checks.conform import PROBLEMS, Conformed, FeedRules, conform
from tallymark.config.pipeline_file import ColumnConfig
from tallymark.model.batch import SourceFile
from tallymark.model.plan import ROW_ORDER
from tallymark.model.table import Column, TableShape
from tallymark.spark.frames import local_frame


def as_source(frame: DataFrame, corrupt: str = "cast(null as string)") -> DataFrame:
    return frame.coalesce(1).selectExpr(
        "*",
        "0 AS _tm_file",
        "0L AS _tm_block",
        "monotonically_increasing_id() AS _tm_row",
        f"{corrupt} AS _tm_corrupt",
        "'hash' AS _source_file_hash",
        "'/in/a.csv' AS _source_file",
    )


def columns_of(frame: DataFrame) -> list[Column]:
    return [
        Column(field.name, field.dataType.simpleString())
        for field in frame.schema.fields
        if not field.name.startswith(("_tm_", "_source_"))
    ]


@pytest.fixture
def source() -> Callable[..., DataFrame]:
    return as_source


@pytest.fixture
def conformed() -> Callable[..., Conformed]:
    def make(
        frame: DataFrame,
        *rules: ColumnConfig,
        table: TableShape | None = None,
        required: Sequence[str] = (),
        unique_key: Sequence[str] = (),
        feed: FeedRules | None = None,
    ) -> Conformed:
        return conform(
            frame, columns_of(frame), rules, table, required=required, unique_key=unique_key, feed=feed
        )

    return make


@pytest.fixture
def cast(conformed: Callable[..., Conformed]) -> Callable[..., list[tuple[object, str]]]:
    """Column `v` of a frame into a type: the value, or the reason why not."""

    def values(frame: DataFrame, type_name: str, pattern: str | None = None) -> list[tuple[object, str]]:
        rule = ColumnConfig(name="v", type=type_name, format=pattern)
        made = conformed(as_source(frame), rule).frame.orderBy(ROW_ORDER)
        # Python has no year 12026: what a refused value became is nobody's concern.
        kept = F.when(F.size(PROBLEMS) == 0, F.col("v")).alias("v")
        return [outcome(row) for row in made.select(kept, PROBLEMS).collect()]

    return values


@pytest.fixture
def cast_all(
    spark: SparkSession, conformed: Callable[..., Conformed]
) -> Callable[[list[tuple[str, list[str]]]], list[list[tuple[object, str]]]]:
    """Many columns in one frame, each its target type and its values in SQL: the same as `cast` for each,
    in one Spark job."""

    def values(columns: list[tuple[str, list[str]]]) -> list[list[tuple[object, str]]]:
        names = [f"v{number}" for number in range(len(columns))]
        arrays = (f"array({', '.join(sql)}) AS {name}" for name, (_, sql) in zip(names, columns, strict=True))
        frame = spark.sql(f"SELECT inline(arrays_zip({', '.join(names)})) FROM (SELECT {', '.join(arrays)})")
        rules = [ColumnConfig(name=name, type=to) for name, (to, _) in zip(names, columns, strict=True)]
        made = conformed(as_source(frame), *rules).frame.orderBy(ROW_ORDER)
        good = (f"IF(exists({PROBLEMS}, p -> p.column = '{name}'), NULL, {name}) AS {name}" for name in names)
        rows = made.selectExpr(*good, PROBLEMS).collect()
        return [
            [_outcome_of(name, row) for row in rows[: len(sql)]]
            for name, (_, sql) in zip(names, columns, strict=True)
        ]

    return values


def _outcome_of(name: str, row: Row) -> tuple[object, str]:
    reasons = [problem["reason"] for problem in row[PROBLEMS] if problem["column"] == name]
    return (None, reasons[0]) if reasons else (row[name], "")


def outcome(row: Row) -> tuple[object, str]:
    problems = row[PROBLEMS]
    return (None, problems[0]["reason"]) if problems else (row["v"], "")


@pytest.fixture
def texts(spark: SparkSession) -> Callable[[Sequence[str | None]], DataFrame]:
    return lambda values: local_frame(spark, [(value,) for value in values], "v string")


@pytest.fixture
def csv_source(spark: SparkSession) -> Callable[[Sequence[Path], str], DataFrame]:
    """Reads csv as the sources do, in splits of about 1000 bytes."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", 1000)
    spark.conf.set("spark.sql.files.openCostInBytes", 0)

    def read(paths: Sequence[Path], schema: str) -> DataFrame:
        frame = spark.read.option("columnPruning", False).csv(
            [str(path) for path in paths],
            schema=f"{schema}, _tm_corrupt string",
            columnNameOfCorruptRecord="_tm_corrupt",
        )
        index = F.create_map(*[F.lit(x) for at, path in enumerate(paths) for x in (path.name, at)])
        return frame.select(
            "*",
            index[F.col("_metadata.file_name")].alias("_tm_file"),
            F.col("_metadata.file_block_start").alias("_tm_block"),
            F.monotonically_increasing_id().alias("_tm_row"),
            F.lit("hash").alias("_source_file_hash"),
            F.col("_metadata.file_path").alias("_source_file"),
        )

    return read


@pytest.fixture
def source_files() -> Callable[[Sequence[Path]], list[SourceFile]]:
    return lambda paths: [SourceFile(str(path), path.stat().st_size, 0, path.name) for path in paths]
