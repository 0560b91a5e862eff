"""Rows of a database driver into a Parquet file, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tallymark.destinations.warehouse.engine import NativeColumn, Row
from tallymark.errors import DestinationError
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import Primitive, stored_type

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
