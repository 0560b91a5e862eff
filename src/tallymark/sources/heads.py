"""The first record of a text file, read without Spark: headers decide how a file is read."""

from __future__ import annotations

import bz2
import codecs
import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tallymark.errors import UnreadableFile
from tallymark.sources.encodings import python_name
from tallymark.sources.stores import stores_of

_FIRST_LOOK = 16 << 10
_LONGEST_HEAD = 1 << 30
COMPRESSIONS = (".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class Dialect:
    separator: str
    quote: str  # "" when nothing is quoted
    comment: str  # "" when there are none
    encoding: str


def first_records(
    paths: Sequence[str], dialect: Dialect, spark: Callable[[], SparkSession]
) -> dict[str, list[str] | None]:
    """None for a file without any record. A record longer than the first look is read further."""
    records: dict[str, list[str] | None] = {}
    for store, held in stores_of(paths, spark):
        left, size = list(held), _FIRST_LOOK
        while left:
            heads = store.head(left, size)
            for path, head in heads.items():
                whole = len(head) < size or size >= _LONGEST_HEAD
                text = _decode(path, _decompress(path, head), dialect.encoding, whole)
                record = first_record(text, dialect)
                if record.complete or whole:
                    records[path] = record.fields
            left = [path for path in left if path not in records]
            size *= 16
    return records


@dataclass(frozen=True)
class Record:
    fields: list[str] | None
    complete: bool  # its line break was seen


def first_record(text: str, dialect: Dialect) -> Record:
    """Skips blank and comment lines as Spark does. Quotes are doubled inside quotes."""
    start = 1 if text.startswith("\ufeff") else 0
    while start < len(text):
        if text[start] in "\r\n":
            start += 1
        elif dialect.comment and text.startswith(dialect.comment, start):
            end = _line_end(text, start)
            if end < 0:
                return Record(None, False)
            start = end
        else:
            return _fields(text, start, dialect)
    return Record(None, False)


def _fields(text: str, at: int, dialect: Dialect) -> Record:
    fields: list[str] = []
    while True:
        value = ""
        if dialect.quote and text.startswith(dialect.quote, at):
            value, at, closed = _quoted(text, at + 1, dialect.quote)
            if not closed:
                return Record([*fields, value], False)
        end = _line_end(text, at)
        stop = text.find(dialect.separator, at, end if end >= 0 else len(text))
        if stop >= 0:
            fields.append(value + text[at:stop])
            at = stop + len(dialect.separator)
        else:
            return Record([*fields, value + text[at : end if end >= 0 else len(text)]], end >= 0)


def _quoted(text: str, at: int, quote: str) -> tuple[str, int, bool]:
    """The text up to the closing quote, and where it goes on."""
    value = ""
    while (end := text.find(quote, at)) >= 0:
        value += text[at:end]
        if not text.startswith(quote, end + 1):
            return value, end + 1, True
        value += quote
        at = end + 2
    return value + text[at:], len(text), False


def _line_end(text: str, at: int) -> int:
    ends = [end for end in (text.find("\n", at), text.find("\r", at)) if end >= 0]
    return min(ends, default=-1)


def _decode(path: str, data: bytes, encoding: str, whole: bool) -> str:
    name = python_name(encoding)
    if name in ("utf-16", "utf-32") and not data.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        name += "-be"  # what Java takes when there is no byte order mark
    decoder = codecs.getincrementaldecoder(name)("strict")
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n")
        if line > 0:  # rows after the first are the reader's to judge
            return codecs.decode(data, name, "replace")
        raise UnreadableFile(
            path,
            f"its first line is not {encoding}: byte {error.start + 1} is 0x{data[error.start]:02X}",
            hint="set source.encoding, such as latin-1 or windows-1252",
        ) from None


def _decompress(path: str, data: bytes) -> bytes:
    """As much as the bytes give: the rest of the stream is not here."""
    try:
        if path.endswith(".gz"):
            return _members(data, lambda: zlib.decompressobj(31))
        if path.endswith(".bz2"):
            return _members(data, bz2.BZ2Decompressor)
        if path.endswith(".zst"):
            import zstandard

            stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
            return bytes(stream.read(_LONGEST_HEAD))
    except Exception as error:  # each library has its own
        raise UnreadableFile(path, f"cannot be decompressed: {error}") from error
    return data


def _members(data: bytes, new: Callable[[], zlib._Decompress | bz2.BZ2Decompressor]) -> bytes:
    """Compressed streams one after another are one file."""
    out = b""
    while data:
        stream = new()
        out += stream.decompress(data)
        data = stream.unused_data if stream.eof else b""
    return out
