"""Brings the rows of a batch from Spark to the driver as Arrow tables of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from tallymark.destinations.contract import ArrowRows, Incoming, SparkRows
from tallymark.model.plan import POSITION, TECHNICAL_COLUMNS, Plan
from tallymark.model.table import JSON_TYPE, Column
from tallymark.model.types import is_nested, quoted, stored_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_AT_ONCE = 100_000


def staged_columns(plan: Plan) -> tuple[Column, ...]:
    return (*plan.given, *POSITION)


def rows_to_stage(plan: Plan, incoming: Incoming) -> tuple[int, Iterator[pa.Table]]:
    """How many rows, and the rows in the columns and types of the temporary table."""
    match incoming:
        case ArrowRows(tables, count):
            return count, (_staged_table(plan, table) for table in tables)
        case SparkRows(frame, count):
            total = frame.count() if count is None else count
            return total, arrow_tables(staged_frame(plan, frame), total)


def staged_frame(plan: Plan, incoming: DataFrame) -> DataFrame:
    """The batch under the table's names and in the plan's types."""
    by_name = {field.name.casefold(): field for field in incoming.schema.fields}
    selected = []
    for column in staged_columns(plan):
        source = by_name[column.name.casefold()]
        given = source.dataType.simpleString()
        value = _in_order(quoted(source.name), given)
        selected.append(f"{_converted(value, given, column.type)} AS {quoted(column.name)}")
    return incoming.selectExpr(*selected)


def _staged_table(plan: Plan, rows: pa.Table) -> pa.Table:
    """The same of rows that are in the plan's types already."""
    spelling = {name.casefold(): name for name in rows.column_names}
    names = [column.name for column in staged_columns(plan)]
    return pa.table([rows[spelling[name.casefold()]] for name in names], names=names)


def _in_order(value: str, given: str) -> str:
    """Maps are the same whatever the order of their entries; in a database they are compared with it."""
    return f"map_from_entries(array_sort(map_entries({value})))" if given.startswith("map<") else value


def _converted(value: str, given: str, wanted: str) -> str:
    if wanted == JSON_TYPE:
        # Without the option a field that is NULL would vanish, and with it the difference to a missing one.
        as_json = f"to_json({value}, map('ignoreNullFields', 'false'))"
        return as_json if is_nested(stored_type(given)) else value
    return f"CAST({value} AS {'string' if wanted == 'void' else wanted})"


def arrow_tables(frame: DataFrame, total: int) -> Iterator[pa.Table]:
    """Arrow is many times faster than rows as Python objects. A large batch comes in several parts, told
    apart by the hash of what identifies a row; each part reads the cached frame once, while the database
    takes the part before it."""
    parts = -(-total // ROWS_AT_ONCE)
    if parts <= 1:
        yield frame.toArrow()
        return
    from pyspark.sql import functions as F

    part = F.pmod(F.xxhash64(*(F.col(quoted(name)) for name in TECHNICAL_COLUMNS)), F.lit(parts))
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(frame.where(part == 0).toArrow)
        for number in range(1, parts + 1):
            table = coming.result()
            if number < parts:
                coming = ahead.submit(frame.where(part == number).toArrow)
            yield table
