"""Small frames made here, and paths as Spark's readers take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tallymark.model.table import Column
from tallymark.model.types import quoted
from tallymark.spark.sessions import active_session_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_frame(spark: SparkSession, rows: list[tuple[object, ...]], schema: str) -> DataFrame:
    """A few rows known here. Through Arrow they become part of the plan; as Python objects they would each
    time start Python workers to be read."""
    fields = fields_of(schema)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrow = to_arrow_schema(fields)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, arrow, strict=True)]
    return arrow_frame(spark, pa.Table.from_arrays(arrays, schema=arrow), fields)


def fields_of(schema: str) -> StructType:
    """Spark reads this text by the settings of whatever session is active, also the caller's."""
    return cast(StructType, StructType.fromDDL(re.sub(r"\btimestamp\b", "timestamp_ltz", schema)))


def arrow_frame(spark: SparkSession, rows: pa.Table, fields: StructType | None = None) -> DataFrame:
    """PySpark makes its session the active one of the whole process: the caller's own is given back."""
    with active_session_kept():
        return spark.createDataFrame(rows) if fields is None else spark.createDataFrame(rows, fields)


def no_rows(spark: SparkSession, columns: Iterable[Column]) -> DataFrame:
    nothing = (f"CAST(NULL AS {column.type}) AS {quoted(column.name)}" for column in columns)
    return spark.sql(f"SELECT {', '.join(nothing)} WHERE false")


def literal_path(path: str | Path) -> str:
    """Spark's readers of files take a glob."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


_ADAPTIVE = "spark.sql.adaptive.enabled"
_FEW_ROWS = 200_000
_FEW_BYTES = 16 << 20


@contextmanager
def planned_for(
    spark: SparkSession, *, rows: int | None = None, size_bytes: int | None = None
) -> Iterator[None]:
    """Adaptive execution runs each step of a query as a job of its own, to learn sizes. For a batch that is
    known to be small, the jobs cost more than any size could save."""
    few = (rows is not None and rows <= _FEW_ROWS) or (size_bytes is not None and size_bytes <= _FEW_BYTES)
    with temporary_settings(spark, {_ADAPTIVE: "false"} if few else {}):
        yield


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        with suppress(Exception):  # the session may be gone, and its settings with it
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
