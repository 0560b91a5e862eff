"""Values on their way into PostgreSQL, by COPY, and out of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tallymark.destinations.sql_engine import NativeColumn, quoted
from tallymark.destinations.sql_values import timestamp_array
from tallymark.errors import DestinationError
from tallymark.model.table import JSON_TYPE


def exported(column: NativeColumn) -> str:
    """What Spark has as text, such as JSON or a uuid, as the server writes it."""
    text = column.spark in ("string", JSON_TYPE)
    return f"CAST({quoted(column.name)} AS text)" if text else quoted(column.name)


def lines(batch: pa.RecordBatch, columns: Sequence[NativeColumn]) -> bytes:
    """Rows in COPY's text format, made column by column."""
    texts = [_copied(array, column) for array, column in zip(batch.columns, columns, strict=True)]
    rows = pc.binary_join_element_wise(*texts, "\t", null_handling="replace", null_replacement="\\N")
    return ("\n".join(rows.to_pylist()) + "\n").encode() if len(rows) else b""


def _copied(array: pa.Array, column: NativeColumn) -> pa.Array:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if v is None else "\\\\x" + v.hex() for v in array.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        return timestamp_array(array)
    texts = array.cast(pa.string())
    if not pa.types.is_string(kind):
        return texts
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise DestinationError(
            f"column {column.name}: a text holds the character NUL, which PostgreSQL cannot store",
            hint=f"give {column.name} a rule in `columns` that takes it out, or load it as binary",
        )
    for character, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        texts = pc.replace_substring(texts, character, escaped)
    return texts
