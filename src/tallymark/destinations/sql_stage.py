"""Brings the rows of a batch from Spark to the driver as Arrow tables of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.destinations.spark_sql import quoted
from tallymark.destinations.sql_types import parse_type
from tallymark.model.plan import POSITION, TECHNICAL_COLUMNS, Plan
from tallymark.model.table import JSON_TYPE, Column

ROWS_AT_ONCE = 100_000


def staged_columns(plan: Plan) -> tuple[Column, ...]:
    return (*plan.given, *POSITION)


def staged_frame(plan: Plan, incoming: DataFrame) -> DataFrame:
    """The batch under the table's names and in the plan's types."""
    by_name = {field.name.casefold(): field for field in incoming.schema.fields}
    selected = []
    for column in staged_columns(plan):
        source = by_name[column.name.casefold()]
        value = _in_order(F.col(quoted(source.name)), source.dataType.simpleString())
        selected.append(_converted(value, source.dataType.simpleString(), column.type).alias(column.name))
    return incoming.select(*selected)


def _in_order(value: SparkColumn, given: str) -> SparkColumn:
    """Maps are the same whatever the order of their entries; in a database they are compared with it."""
    return F.map_from_entries(F.array_sort(F.map_entries(value))) if given.startswith("map<") else value


def _converted(value: SparkColumn, given: str, wanted: str) -> SparkColumn:
    if wanted == JSON_TYPE:
        # Without the option a field that is NULL would vanish, and with it the difference to a missing one.
        return F.to_json(value, {"ignoreNullFields": "false"}) if parse_type(given).is_nested else value
    return value.cast("string" if wanted == "void" else wanted)


def arrow_tables(frame: DataFrame, total: int) -> Iterator[pa.Table]:
    """Arrow is many times faster than rows as Python objects. A large batch comes in several parts, told
    apart by the hash of what identifies a row; each part reads the cached frame once."""
    parts = -(-total // ROWS_AT_ONCE)
    if parts <= 1:
        yield frame.toArrow()
        return
    part = F.pmod(F.xxhash64(*(F.col(quoted(name)) for name in TECHNICAL_COLUMNS)), F.lit(parts))
    for number in range(parts):
        yield frame.where(part == number).toArrow()
