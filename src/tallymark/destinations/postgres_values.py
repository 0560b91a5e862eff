"""Values on their way into PostgreSQL, by COPY, and out of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tallymark.destinations.sql_engine import NativeColumn, quoted
from tallymark.destinations.sql_values import timestamp_array
from tallymark.errors import DestinationError
from tallymark.model.table import JSON_TYPE

_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def exported(column: NativeColumn) -> str:
    """What Spark has as text, such as JSON or a uuid, as the server writes it."""
    text = column.spark in ("string", JSON_TYPE)
    return f"CAST({quoted(column.name)} AS text)" if text else quoted(column.name)


def lines(batch: pa.RecordBatch, columns: Sequence[NativeColumn]) -> memoryview:
    """Rows in COPY's text format, made column by column: no row becomes an object of Python."""
    texts = [_copied(array, column) for array, column in zip(batch.columns, columns, strict=True)]
    rows = pc.binary_join_element_wise(*texts, "\t", null_handling="replace", null_replacement="\\N")
    return _bytes_of(pc.binary_join_element_wise(rows, "", "\n"))


def _bytes_of(texts: pa.Array) -> memoryview:
    """Arrow keeps the texts of an array one after the other, which is all that COPY wants."""
    if len(texts) == 0:
        return memoryview(b"")
    _, offsets, values = texts.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(values)[ends[texts.offset] : ends[texts.offset + len(texts)]]


def _copied(array: pa.Array, column: NativeColumn) -> pa.Array:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if v is None else "\\\\x" + v.hex() for v in array.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        return timestamp_array(array)
    texts = array.cast(pa.string())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return texts
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise DestinationError(
            f"column {column.name}: a text holds the character NUL, which PostgreSQL cannot store",
            hint=f"give {column.name} a rule in `columns` that takes it out, or load it as binary",
        )
    for character, escaped in _ESCAPED:
        texts = pc.replace_substring(texts, character, escaped)
    return texts
