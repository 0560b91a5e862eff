"""Small frames made here, and paths as Spark's readers take them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tallymark.model.sql_text import quoted
from tallymark.model.table import Column


def local_frame(spark: SparkSession, rows: list[tuple[object, ...]], schema: str) -> DataFrame:
    """A few rows known here. Through Arrow they become part of the plan; as Python objects they would each
    time start Python workers to be read."""
    fields = cast(StructType, StructType.fromDDL(schema))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrow = to_arrow_schema(fields)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, arrow, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), fields)


def no_rows(spark: SparkSession, columns: Iterable[Column]) -> DataFrame:
    nothing = (f"CAST(NULL AS {column.type}) AS {quoted(column.name)}" for column in columns)
    return spark.sql(f"SELECT {', '.join(nothing)} WHERE false")


def literal_path(path: str | Path) -> str:
    """Spark's readers of files take a glob."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))
