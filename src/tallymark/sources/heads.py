"""What a text file shows before Spark reads it: its character set, its first record, whether its lines are
records. Headers decide how a file is read.
"""

from __future__ import annotations

import bz2
import codecs
import difflib
import io
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pyspark.sql import SparkSession

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import SourceFile
from tallymark.sources.stores import is_local, stores_of

_FIRST_READ = 16 << 10  # bytes
# A few bytes can unpack to gigabytes, and a file need not have a line break. All that is read of a file here
# goes through the driver's memory, for several files at once.
_LONGEST_HEAD = 16 << 20  # bytes, packed or unpacked
_MOST_FIELDS = 50_000
_UNPACKED_AT_ONCE = 64  # times the bytes that were read
COMPRESSIONS = (".gz", ".bz2", ".zst")
_WORTH_SPLITTING = 8 << 20  # bytes; Spark does not split smaller files on two cores
_AT_ONCE = 4 << 20
_LONGEST_LINE = 64 << 20
_QUOTE = b'"'
# Spark drops a blank line if it reads by lines, and takes it for a row otherwise.
_BLANK_LINE = re.compile(rb"\n[\x00-\x09\x0b\x0c\x0e-\x20]+\r?(?:\n|\Z)")
_JAVA_NAMES = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8",
    "ascii": "US-ASCII",
    "iso8859-1": "ISO-8859-1",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32": "UTF-32",
}
_COMMON = ["utf-8", "latin-1", "windows-1252", "utf-16", "utf-16le", "utf-16be", "utf-32", "iso-8859-15"]


@dataclass(frozen=True)
class Dialect:
    separator: str
    quote: str  # "" when nothing is quoted
    comment: str  # "" when there are none
    encoding: str


def first_records(
    paths: Sequence[str], dialect: Dialect, spark: Callable[[], SparkSession]
) -> dict[str, list[str] | None]:
    """By path; None for a file without a record. If the first read does not hold the whole record, more is
    read, up to a limit. Raises UnreadableFile beyond it."""
    records: dict[str, list[str] | None] = {}
    for store, held in stores_of(paths, spark):
        left, size = list(held), _FIRST_READ
        while left:
            heads = store.head(left, size)
            for path, head in heads.items():
                most = min(_LONGEST_HEAD, size * _UNPACKED_AT_ONCE)
                data = _decompress(path, head, most)
                whole = len(head) < size and len(data) < most
                record = first_record(_decode(path, data, dialect.encoding, whole), dialect)
                if record.fields is not None and len(record.fields) > _MOST_FIELDS:
                    raise UnreadableFile(
                        path,
                        f"its first record has more than {_MOST_FIELDS} fields",
                        hint="look at its first line: is source.options sep right?",
                    )
                if record.complete or whole:
                    records[path] = record.fields
                elif size >= _LONGEST_HEAD or len(data) >= _LONGEST_HEAD:
                    raise _too_long(path)
            left = [path for path in left if path not in records]
            size = min(size * 16, _LONGEST_HEAD)
    return records


def _too_long(path: str) -> UnreadableFile:
    return UnreadableFile(
        path,
        f"its first record is longer than {_LONGEST_HEAD >> 20} MiB, unpacked",
        hint="a line break or a closing quote is missing, or the file is not what its name says",
    )


@dataclass(frozen=True)
class Record:
    fields: list[str] | None
    complete: bool  # including its line break


def first_record(text: str, dialect: Dialect) -> Record:
    """Skips blank lines and comments, as Spark does. A quote inside quotes is doubled."""
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
    end = at - 1  # of the line; looked for once, not for every field
    while True:
        value = ""
        if dialect.quote and text.startswith(dialect.quote, at):
            value, at, closed = _quoted(text, at + 1, dialect.quote)
            if not closed:
                return Record([*fields, value], False)
        if 0 <= end < at or not fields:
            end = _line_end(text, at)
        if len(fields) > _MOST_FIELDS:
            return Record(fields, True)
        stop = text.find(dialect.separator, at, end if end >= 0 else len(text))
        if stop >= 0:
            fields.append(value + text[at:stop])
            at = stop + len(dialect.separator)
        else:
            return Record([*fields, value + text[at : end if end >= 0 else len(text)]], end >= 0)


def _quoted(text: str, at: int, quote: str) -> tuple[str, int, bool]:
    """The text up to the closing quote, the position after it, and whether there is one."""
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
        name += "-be"  # as Java reads it without a byte order mark
    decoder = codecs.getincrementaldecoder(name)("strict")
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n")
        if line > 0:  # the reader finds bad rows after the first
            return codecs.decode(data, name, "replace")
        raise UnreadableFile(
            path,
            f"its first line is not {encoding}: byte {error.start + 1} is 0x{data[error.start]:02X}",
            hint="set source.encoding, such as latin-1 or windows-1252",
        ) from None


def _decompress(path: str, data: bytes, most: int) -> bytes:
    """As much as can be decompressed, up to `most` bytes: the end of the stream is missing."""
    try:
        if path.endswith(".gz"):
            return _members(data, lambda: zlib.decompressobj(31), most)
        if path.endswith(".bz2"):
            return _members(data, bz2.BZ2Decompressor, most)
        if path.endswith(".zst"):
            import zstandard

            stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
            return bytes(stream.read(most))
    except Exception as error:  # each library has its own class
        raise UnreadableFile(path, f"cannot be decompressed: {error}") from error
    return data


def _members(data: bytes, new: Callable[[], zlib._Decompress | bz2.BZ2Decompressor], most: int) -> bytes:
    """A file may be several compressed streams in a row."""
    out = bytearray()
    while data and len(out) < most:
        stream = new()
        out += stream.decompress(data, most - len(out))
        data = stream.unused_data if stream.eof else b""
    return bytes(out)


# Whether each line of a delimited file is one record, so that several tasks can read parts of it. A quoted
# value may contain line breaks, so Spark must read such a file from its start, in one task. Without quotes
# there are none. Looking for them costs a small part of what a second core saves.


def has_plain_lines(file: SourceFile, encoding: str) -> bool:
    """False for files that are not examined: small, compressed and remote ones."""
    if file.size < _WORTH_SPLITTING or not is_local(file.path) or file.path.endswith(COMPRESSIONS):
        return False
    if not has_ascii_bytes(encoding):
        return False
    with Path(file.path).open("rb") as opened:
        return _are_plain(opened)


def _are_plain(opened: BinaryIO) -> bool:
    windows: bool | None = None
    while lines := opened.read(_AT_ONCE):
        lines += opened.readline(_LONGEST_LINE)
        if _QUOTE in lines or _BLANK_LINE.search(b"\n" + lines):
            return False
        here = b"\r" in lines
        if windows not in (None, here) or (here and not _ends_as_on_windows(lines)):
            return False  # several kinds of line ends
        windows = here
    return True


def _ends_as_on_windows(lines: bytes) -> bool:
    return lines.count(b"\r\n") == lines.count(b"\r") == lines.count(b"\n")


# Character sets: Python's names, Java's names, and which of them Spark takes by default


def python_name(encoding: str) -> str:
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        close = difflib.get_close_matches(encoding.lower(), _COMMON, n=1)
        raise SourceError(
            f"source.encoding: {encoding} is not a known encoding",
            hint=f"did you mean {close[0]}?" if close else f"use one such as {', '.join(_COMMON)}",
        ) from None


def is_utf8(encoding: str) -> bool:
    return python_name(encoding) in ("utf-8", "utf-8-sig")


def is_wide(encoding: str) -> bool:
    """A line break is more than the byte 10, so lines are found only after decoding."""
    return python_name(encoding).startswith(("utf-16", "utf-32"))


def has_ascii_bytes(encoding: str) -> bool:
    """A byte below 128 is always that character of ASCII."""
    return python_name(encoding).startswith(("utf-8", "ascii", "iso8859", "cp125"))


def java_name(encoding: str, spark: SparkSession) -> str:
    """Spark 4 takes only seven character sets, unless the session allows others."""
    name = python_name(encoding)
    if name not in _JAVA_NAMES:
        spark.conf.set("spark.sql.legacy.javaCharsets", "true")
    return _JAVA_NAMES.get(name, name)
