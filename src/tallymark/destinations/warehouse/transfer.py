"""Moves rows into a database and out of it.

In: the rows of a batch come from Spark to the driver as Arrow tables of bounded size. Out: rows that a
database driver returns go into a Parquet file, which Spark reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tallymark.destinations.contract import ArrowRows, Incoming, SparkRows
from tallymark.destinations.warehouse.engine import NativeColumn, Row
from tallymark.errors import DestinationError
from tallymark.model.plan import POSITION, TECHNICAL_COLUMNS, Plan
from tallymark.model.table import JSON_TYPE, Column
from tallymark.model.types import Primitive, is_nested, stored_type
from tallymark.model.types import quoted as spark_quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_PER_TABLE = 100_000


def staged_columns(plan: Plan) -> tuple[Column, ...]:
    return (*plan.given, *POSITION)


def rows_to_stage(plan: Plan, incoming: Incoming) -> tuple[int, Iterator[pa.Table]]:
    """The number of rows, and the rows in the columns and types of the temporary table."""
    match incoming:
        case ArrowRows(tables, count):
            return count, (_staged_table(plan, table) for table in tables)
        case SparkRows(frame, count):
            total = frame.count() if count is None else count
            return total, arrow_tables(staged_frame(plan, frame), total)


def staged_frame(plan: Plan, incoming: DataFrame) -> DataFrame:
    """The batch with the table's column names and in the plan's types."""
    by_name = {field.name.casefold(): field for field in incoming.schema.fields}
    selected = []
    for column in staged_columns(plan):
        source = by_name[column.name.casefold()]
        given = source.dataType.simpleString()
        value = _sorted_map(spark_quoted(source.name), given)
        selected.append(f"{_converted(value, given, column.type)} AS {spark_quoted(column.name)}")
    return incoming.selectExpr(*selected)


def _staged_table(plan: Plan, rows: pa.Table) -> pa.Table:
    """As `staged_frame`, for rows that are already in the plan's types."""
    spelling = {name.casefold(): name for name in rows.column_names}
    names = [column.name for column in staged_columns(plan)]
    return pa.table([rows[spelling[name.casefold()]] for name in names], names=names)


def _sorted_map(value: str, given: str) -> str:
    """Two maps are equal in Spark whatever the order of their entries. Databases compare the order too."""
    return f"map_from_entries(array_sort(map_entries({value})))" if given.startswith("map<") else value


def _converted(value: str, given: str, wanted: str) -> str:
    if wanted == JSON_TYPE:
        # Without the option, a field that is NULL could not be distinguished from a missing one.
        as_json = f"to_json({value}, map('ignoreNullFields', 'false'))"
        return as_json if is_nested(stored_type(given)) else value
    return f"CAST({value} AS {'string' if wanted == 'void' else wanted})"


def arrow_tables(frame: DataFrame, total: int) -> Iterator[pa.Table]:
    """Arrow is many times faster than rows as Python objects. A large batch is split by a hash of each row's
    position. Each part reads the cached frame once, while the database receives the part before it."""
    parts = -(-total // ROWS_PER_TABLE)
    if parts <= 1:
        yield frame.toArrow()
        return
    from pyspark.sql import functions as F

    part = F.pmod(F.xxhash64(*(F.col(spark_quoted(name)) for name in TECHNICAL_COLUMNS)), F.lit(parts))
    with ThreadPoolExecutor(1) as reader:
        pending = reader.submit(frame.where(part == 0).toArrow)
        for number in range(1, parts + 1):
            table = pending.result()
            if number < parts:
                pending = reader.submit(frame.where(part == number).toArrow)
            yield table


# Values between Arrow and drivers.

_LARGEST_PLAIN_SCALE = 6  # Arrow may format decimals with a larger scale with an exponent


def decimal_texts(array: pa.Array) -> list[str | None]:
    """With all digits of the scale, so that equal numbers have equal texts."""
    if array.type.scale <= _LARGEST_PLAIN_SCALE:
        texts: list[str | None] = array.cast(pa.string()).to_pylist()
        return texts
    return [None if value is None else format(value, "f") for value in array.to_pylist()]


def date_texts(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts


def timestamp_texts(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = timestamp_array(array).to_pylist()
    return texts


def timestamp_array(array: pa.Array) -> Any:
    """ISO texts with microseconds. A timestamp with time zone is in UTC and has an offset."""
    if array.type.tz is None:
        return array.cast(pa.timestamp("us")).cast(pa.string())
    in_utc = array.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(in_utc, "+00:00", "")


def local_wall_clock(value: datetime) -> datetime | str:
    """As Spark returns timestamps to Python: in the local time zone, without an offset. A text, if that is
    before the year 1 or after 9999, where Python has no dates."""
    try:
        return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)
    except (OverflowError, ValueError):
        return value.isoformat(" ")


def arrow_values(column: pa.ChunkedArray) -> list[Any]:
    """As Python objects; dates and times that Python has no objects for are texts."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except (OverflowError, ValueError):
        return [_object_or_text(value) for value in column]


def _object_or_text(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        nested = pa.types.is_nested(value.type)
        return str(value) if nested else value.cast(pa.string()).as_py()


def spark_value(value: Any) -> Any:
    """A value of a driver as Spark would return it to Python. Arrow has maps as lists of pairs."""
    match value:
        case datetime():
            return local_wall_clock(value)
        case dict():
            return {key: spark_value(item) for key, item in value.items()}
        case [(_, _), *_] if all(isinstance(pair, tuple) for pair in value):
            return {key: spark_value(item) for key, item in value}
        case list():
            return [spark_value(item) for item in value]
        case memoryview():
            return bytes(value)
        case _:
            return value


ROWS_AT_ONCE = 50_000

_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    JSON_TYPE: pa.string(),
}

ValueReader = Callable[[Sequence[object], NativeColumn], Sequence[object]]


def _keep_values(values: Sequence[object], column: NativeColumn) -> Sequence[object]:
    return values


def write_rows(
    file: Path,
    columns: Sequence[NativeColumn],
    parts: Iterable[Sequence[Row]],
    for_arrow: ValueReader = _keep_values,
) -> None:
    """A file without rows has the columns too. `for_arrow` converts the driver's values to values that Arrow
    accepts; the error for a value that it cannot convert names the column."""
    schema = pa.schema([pa.field(column.name, _arrow_type(column.spark)) for column in columns])
    with pq.ParquetWriter(file, schema) as writer:
        for rows in parts:
            values = zip(*rows, strict=True)
            arrays = [_array(each, column, for_arrow) for each, column in zip(values, columns, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _arrow_type(spark: str) -> pa.DataType:
    match stored_type(spark):
        case Primitive(name="decimal", sizes=sizes):
            return pa.decimal128(*sizes)
        case other:
            return _ARROW[other.family]


def _array(values: Sequence[object], column: NativeColumn, for_arrow: ValueReader) -> pa.Array:
    try:
        return pa.array(for_arrow(values, column), _arrow_type(column.spark))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DestinationError(
            f"column {column.name}: a value cannot be read as {column.spark} without loss: {error}",
            hint=f"correct the value in the table, or change the column's type from {column.native}",
        ) from error
