"""Values on their way into PostgreSQL, by COPY, and out of it."""

from __future__ import annotations

import re
import selectors
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tallymark.destinations.postgres import copy as postgres_binary
from tallymark.destinations.warehouse.arrow import timestamp_array
from tallymark.destinations.warehouse.engine import NativeColumn, quoted
from tallymark.errors import RowsRefused, Unsupported
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import Primitive, is_nested, stored_type

if TYPE_CHECKING:
    import psycopg

    from tallymark.destinations.warehouse.engine import Row


_ROWS_AT_ONCE = 10_000
_BYTES_AT_ONCE = 128 << 10
_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def exported(column: NativeColumn) -> str:
    """What Spark has as text, such as JSON or a uuid, as the server writes it."""
    text = column.spark in ("string", JSON_TYPE)
    return f"CAST({quoted(column.name)} AS text)" if text else quoted(column.name)


def copy_rows(
    connection: psycopg.Connection[Row], sql: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]
) -> None:
    """Runs the COPY `sql`. Each part is sent before the next is made: what libpq cannot send at once it
    keeps, however much that is, and it moves all that it keeps with every part that it sends."""
    first = next(tables, None)
    if first is None:
        return
    batches = (b for t in chain([first], tables) for b in t.to_batches(max_chunksize=_ROWS_AT_ONCE))
    parts: Iterator[memoryview] = (lines(batch, columns) for batch in batches)
    if postgres_binary.fits(first.schema, columns):
        sql, parts = f"{sql} (FORMAT binary)", _in_binary(batches, columns)
    with (
        selectors.DefaultSelector() as ready,
        connection.cursor() as cursor,
        cursor.copy(sql.encode()) as copy,
    ):
        ready.register(connection.pgconn.socket, selectors.EVENT_WRITE)
        for data in parts:
            for start in range(0, len(data), _BYTES_AT_ONCE):
                copy.write(data[start : start + _BYTES_AT_ONCE])
                while connection.pgconn.flush():
                    ready.select()


def _in_binary(batches: Iterator[pa.RecordBatch], columns: Sequence[NativeColumn]) -> Iterator[memoryview]:
    yield memoryview(postgres_binary.HEADER)
    for batch in batches:
        for array, column in zip(batch.columns, columns, strict=True):
            if _is_text(array.type):
                texts = array.cast(pa.string())
                _refuse_nul(texts, bytes(_bytes_of(texts)), column)
        yield _bytes_of(postgres_binary.rows(batch, columns))
    yield memoryview(postgres_binary.TRAILER)


def lines(batch: pa.RecordBatch, columns: Sequence[NativeColumn]) -> memoryview:
    """Rows in COPY's text format, made column by column: no row becomes an object of Python."""
    *texts, last = [_copied(array, column) for array, column in zip(batch.columns, columns, strict=True)]
    ended = pc.binary_join_element_wise(last, "", "\n", null_handling="replace", null_replacement="\\N")
    rows = pc.binary_join_element_wise(*texts, ended, "\t", null_handling="replace", null_replacement="\\N")
    return _bytes_of(rows)


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
    if not _is_text(kind):
        return texts
    present = bytes(_bytes_of(texts))  # to look through all of them at once is many times faster
    _refuse_nul(texts, present, column)
    for character, escaped in _ESCAPED:
        if character.encode() in present:
            texts = pc.replace_substring(texts, character, escaped)
    return texts


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _refuse_nul(texts: pa.Array, present: bytes, column: NativeColumn) -> None:
    """`present` are the bytes of all texts, and of some that are NULL."""
    if b"\0" in present and pc.any(pc.match_substring(texts, "\0")).as_py():
        raise RowsRefused(
            f"column {column.name}: a text holds the character NUL, which PostgreSQL cannot store",
            hint=f"give {column.name} a rule in `columns` that takes it out, or load it as binary",
        )


_NATIVE = {
    "boolean": "boolean",
    "tinyint": "smallint",  # PostgreSQL has no smaller one
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "void": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    JSON_TYPE: "jsonb",
}
_SPARK = {native: spark for spark, native in _NATIVE.items() if spark not in ("void", "tinyint")} | {
    "json": JSON_TYPE,
    "numeric": "decimal(38,18)",  # of any size: what fits this type fits it
}


def native_type(spark_type: str) -> str:
    match stored_type(spark_type):
        case Primitive(name="decimal", sizes=(precision, scale)):
            return f"numeric({precision},{scale})"
        case nested if is_nested(nested):
            return _NATIVE[JSON_TYPE]
        case flat if flat.family in _NATIVE:
            return _NATIVE[flat.family]
        case _:
            raise Unsupported(f"PostgreSQL has no type for {spark_type}", hint="cast the column in `columns`")


def spark_type(native: str) -> str:
    if found := re.fullmatch(r"numeric\((\d+),(\d+)\)", native):
        return f"decimal({found[1]},{found[2]})" if int(found[1]) <= 38 else "string"
    without_size = re.sub(r"^(timestamp)\(\d\)", r"\1", native)
    return _SPARK.get(without_size, "string")
