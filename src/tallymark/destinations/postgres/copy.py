"""Sends rows to PostgreSQL by COPY, and says how values are read back.

Both formats of COPY are made column by column: no row becomes a Python object. The server reads the binary
format in about half the time of the text format, and numbers need not be formatted. The text format is the
fallback: the server parses whatever has no binary encoding here.
"""

from __future__ import annotations

import re
import selectors
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallymark.destinations.postgres.types import DIALECT
from tallymark.destinations.warehouse.engine import NativeColumn
from tallymark.destinations.warehouse.transfer import timestamp_array
from tallymark.errors import RowsRefused
from tallymark.model.table import JSON_TYPE

if TYPE_CHECKING:
    import psycopg

    from tallymark.destinations.warehouse.engine import Row

_ROWS_AT_ONCE = 10_000
_BYTES_AT_ONCE = 128 << 10
_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def exported(column: NativeColumn) -> str:
    """JSON, uuids and other values that are strings in Spark are cast to text by the server."""
    text = column.spark in ("string", JSON_TYPE)
    return f"CAST({DIALECT.quote(column.name)} AS text)" if text else DIALECT.quote(column.name)


def copy_rows(
    connection: psycopg.Connection[Row], sql: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]
) -> None:
    """Runs the COPY statement `sql`. Each part is sent before the next one is made: libpq buffers what it
    cannot send at once, without limit, and copies the whole buffer with every part."""
    first = next(tables, None)
    if first is None:
        return
    batches = (b for t in chain([first], tables) for b in t.to_batches(max_chunksize=_ROWS_AT_ONCE))
    parts: Iterator[memoryview] = (text_rows(batch, columns) for batch in batches)
    if fits_binary(first.schema, columns):
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
    yield memoryview(HEADER)
    for batch in batches:
        for array, column in zip(batch.columns, columns, strict=True):
            if _is_text(array.type):
                texts = array.cast(pa.string())
                _refuse_nul(texts, bytes(_bytes_of(texts)), column)
        yield _bytes_of(binary_rows(batch, columns))
    yield memoryview(TRAILER)


def text_rows(batch: pa.RecordBatch, columns: Sequence[NativeColumn]) -> memoryview:
    """Rows in the text format of COPY."""
    *texts, last = [_copied(array, column) for array, column in zip(batch.columns, columns, strict=True)]
    ended = pc.binary_join_element_wise(last, "", "\n", null_handling="replace", null_replacement="\\N")
    rows = pc.binary_join_element_wise(*texts, ended, "\t", null_handling="replace", null_replacement="\\N")
    return _bytes_of(rows)


def _bytes_of(texts: pa.Array) -> memoryview:
    """Arrow stores the texts of an array one after the other, as COPY needs them."""
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
    present = bytes(_bytes_of(texts))  # one search through all texts is many times faster
    _refuse_nul(texts, present, column)
    for character, escaped in _ESCAPED:
        if character.encode() in present:
            texts = pc.replace_substring(texts, character, escaped)
    return texts


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _refuse_nul(texts: pa.Array, present: bytes, column: NativeColumn) -> None:
    """`present` has the bytes of all texts, and may have more."""
    if b"\0" in present and pc.any(pc.match_substring(texts, "\0")).as_py():
        raise RowsRefused(
            f"column {column.name}: a text contains the character NUL, which PostgreSQL cannot store",
            hint=f"give {column.name} a rule in `columns` that removes it, or load it as binary",
        )


# The binary format.

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

# PostgreSQL counts from the year 2000. Its smallest numbers mean -infinity, so values are kept above them:
# the server then refuses such a value as out of range.
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000
_LONGEST_DECIMAL = 18  # digits that fit a bigint
_FINEST_DECIMAL = 15  # decimal places; padded to groups of four
_NEGATIVE = 0x4000
_NULL_LENGTH = -1

FixedEncoder = Callable[[pa.Array], Any]  # values without NULLs → a matrix of bytes, one row each


def fits_binary(schema: pa.Schema, columns: Sequence[NativeColumn]) -> bool:
    """Whether all columns have a binary encoding that holds every value. A number that is too large would be
    truncated here, while the server refuses its text."""
    return all(
        field.type in _TEXTS[_text_of(column)] if _text_of(column) else _fixed(field.type, column) is not None
        for field, column in zip(schema, columns, strict=True)
    )


def binary_rows(batch: pa.RecordBatch, columns: Sequence[NativeColumn]) -> pa.Array:
    """Adjacent fields of fixed length are joined to one block; fields of variable length come in between."""
    count = batch.num_rows
    pieces: list[pa.Array] = []
    block = [_numbers(np.full(count, len(columns)), ">i2")]

    def variable(values: pa.Array, lengths: Any) -> None:
        block.append(_numbers(lengths, ">i4"))
        pieces.extend((_binary(np.hstack(block)), values))
        block.clear()

    for array, column in zip(batch.columns, columns, strict=True):
        if _text_of(column):
            texts = array.cast(pa.binary())
            lengths = pc.fill_null(pc.binary_length(texts), _NULL_LENGTH)
            if column.native == "jsonb":  # starts with the version of its format
                texts = pc.binary_join_element_wise(b"\x01", texts, b"")
                lengths = pc.add(lengths, pc.cast(array.is_valid(), pa.int32()))
            variable(texts, lengths.to_numpy(zero_copy_only=False))
            continue
        encode = _fixed(array.type, column)
        assert encode is not None  # noqa: S101  `fits_binary` has checked it
        if not array.null_count:
            encoded = encode(array)
            block += [_numbers(np.full(count, encoded.shape[1]), ">i4"), encoded]
            continue
        is_valid = array.is_valid().to_numpy(zero_copy_only=False)
        encoded = encode(array.drop_null())
        indices = pa.array(np.cumsum(is_valid) - 1, mask=~is_valid)
        variable(_binary(encoded).take(indices), np.where(is_valid, encoded.shape[1], _NULL_LENGTH))
    if block:
        pieces.append(_binary(np.hstack(block)))
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")


_STRINGS = (pa.string(), pa.large_string())
_TEXTS = {
    "text": _STRINGS,
    "character varying": _STRINGS,
    "jsonb": _STRINGS,
    "bytea": (pa.binary(), pa.large_binary()),
}


def _text_of(column: NativeColumn) -> str:
    """Empty for types of fixed length."""
    without_size = re.sub(r"^(character varying)\(\d+\)$", r"\1", column.native)
    return without_size if without_size in _TEXTS else ""


def _fixed(kind: pa.DataType, column: NativeColumn) -> FixedEncoder | None:
    if pa.types.is_decimal128(kind):
        return _decimal(kind, column.native)
    of, encode = _BY_TYPE.get(column.native, ((), None))
    return encode if kind in of else None


def _whole(form: str) -> FixedEncoder:
    return lambda array: _numbers(array.to_numpy(zero_copy_only=False), form)


def _flags(array: pa.Array) -> Any:
    return _numbers(array.to_numpy(zero_copy_only=False), "u1")


def _date(array: pa.Array) -> Any:
    days = array.cast(pa.int32()).to_numpy().astype(np.int64)
    return _numbers(np.maximum(days - _DAYS, np.iinfo(np.int32).min + 1), ">i4")


def _timestamp(array: pa.Array) -> Any:
    moments = array.cast(pa.int64()).to_numpy()
    return _numbers(np.maximum(moments, np.iinfo(np.int64).min + 1 + _MICROSECONDS) - _MICROSECONDS, ">i8")


_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_BY_TYPE: dict[str, tuple[Sequence[pa.DataType], FixedEncoder]] = {
    "boolean": ((pa.bool_(),), _flags),
    "smallint": (_WHOLE[:2], _whole(">i2")),
    "integer": (_WHOLE[:3], _whole(">i4")),
    "bigint": (_WHOLE, _whole(">i8")),
    "real": ((pa.float32(),), _whole(">f4")),
    "double precision": ((pa.float32(), pa.float64()), _whole(">f8")),
    "date": ((pa.date32(),), _date),
    "timestamp with time zone": ((pa.timestamp("us", "UTC"),), _timestamp),
    "timestamp without time zone": ((pa.timestamp("us"),), _timestamp),
}


def _decimal(kind: pa.Decimal128Type, native: str) -> FixedEncoder | None:
    """Digits in groups of four, the same number for every value: the server strips zeros at both ends."""
    if not re.fullmatch(r"numeric\(\d+,\d+\)", native):
        return None
    precision, scale = kind.precision, kind.scale
    if precision > _LONGEST_DECIMAL or not 0 <= scale <= _FINEST_DECIMAL:
        return None
    whole_groups, fraction_groups = -(-(precision - scale) // 4), -(-scale // 4)

    def encode(array: pa.Array) -> Any:
        words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)  # 18 digits fit the lower half
        value = words[array.offset : array.offset + len(array), 0]
        whole, fraction = np.divmod(np.abs(value), 10**scale)
        fraction *= 10 ** (4 * fraction_groups - scale)
        groups = np.empty((len(value), 4 + whole_groups + fraction_groups), ">i2")
        groups[:, 0] = whole_groups + fraction_groups
        groups[:, 1] = whole_groups - 1
        groups[:, 2] = np.where(value < 0, _NEGATIVE, 0)
        groups[:, 3] = scale
        for at in range(whole_groups):
            groups[:, 3 + whole_groups - at] = whole // 10_000**at % 10_000
        for at in range(fraction_groups):
            groups[:, 3 + whole_groups + fraction_groups - at] = fraction // 10_000**at % 10_000
        return groups.view(np.uint8)

    return encode


def _numbers(values: Any, form: str) -> Any:
    """A matrix with the bytes of one number in each row."""
    return np.ascontiguousarray(values, form).reshape(-1, 1).view(np.uint8)


def _binary(matrix: Any) -> pa.Array:
    count, width = matrix.shape
    ends = np.arange(count + 1, dtype=np.int32) * width
    data = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
