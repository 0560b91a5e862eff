"""Values on their way between Arrow and a database driver, and rows of a driver into a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tallymark.destinations.warehouse.engine import NativeColumn, Row
from tallymark.errors import DestinationError
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import Primitive, stored_type

_WRITTEN_OUT = 6  # decimals with more digits after the point may be written with an exponent by Arrow


def decimal_texts(array: pa.Array) -> list[str | None]:
    """With all digits of the scale, so that equal numbers are equal texts."""
    if array.type.scale <= _WRITTEN_OUT:
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
    """ISO texts with six digits of a second; of a timestamp with zone, in UTC and with the offset."""
    if array.type.tz is None:
        return array.cast(pa.timestamp("us")).cast(pa.string())
    in_utc = array.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(in_utc, "+00:00", "")


def as_spark_gives(value: datetime) -> datetime:
    """Spark gives Python the wall clock of this machine's zone, without a zone."""
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)


def plain(value: Any) -> Any:
    """The same of whatever a driver gives; maps of Arrow are lists of pairs."""
    match value:
        case datetime():
            return as_spark_gives(value)
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case [(_, _), *_] if all(isinstance(pair, tuple) for pair in value):
            return {key: plain(item) for key, item in value}
        case list():
            return [plain(item) for item in value]
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


Reader = Callable[[Sequence[object], NativeColumn], Sequence[object]]


def _as_they_are(values: Sequence[object], column: NativeColumn) -> Sequence[object]:
    return values


def write_rows(
    file: Path,
    columns: Sequence[NativeColumn],
    parts: Iterable[Sequence[Row]],
    for_arrow: Reader = _as_they_are,
) -> None:
    """Without rows too, the file says which columns there are. A reader makes of the driver's values what
    Arrow takes; what it raises names the column."""
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


def _array(values: Sequence[object], column: NativeColumn, for_arrow: Reader) -> pa.Array:
    try:
        return pa.array(for_arrow(values, column), _arrow_type(column.spark))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DestinationError(
            f"column {column.name}: a value cannot be read as {column.spark} without loss: {error}",
            hint=f"correct the value in the table, or give the column another type than {column.native}",
        ) from error
