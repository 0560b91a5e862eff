"""The schema in the head of an Avro file, without a library for it."""

from __future__ import annotations

from collections.abc import Sequence

from tallymark.errors import UnreadableFile
from tallymark.sources.stores import FileStore

_MAGIC = b"Obj\x01"
_LONGEST_HEAD = 64 << 20


class _TooShort(Exception):
    """The head ends before the schema does."""


def writer_schema(store: FileStore, paths: Sequence[str], size: int) -> dict[str, str]:
    """By path. A schema longer than `size` is read further."""
    schemas: dict[str, str] = {}
    left = list(paths)
    while left:
        for path, head in store.head(left, size).items():
            if not head.startswith(_MAGIC):
                raise UnreadableFile(path, "is not an Avro file: it does not begin with Obj")
            try:
                schemas[path] = schema_of(head)
            except _TooShort:
                if len(head) < size or size >= _LONGEST_HEAD:
                    raise UnreadableFile(path, "is cut off: its Avro schema is not complete") from None
        left = [path for path in left if path not in schemas]
        size *= 16
    return schemas


def schema_of(head: bytes) -> str:
    """The file's metadata is a map in blocks of (name, value) pairs; a count of 0 ends it."""
    at = len(_MAGIC)
    while True:
        count, at = _number(head, at)
        if count == 0:
            return ""
        if count < 0:  # then the size of the block follows
            _, at = _number(head, at)
        for _ in range(abs(count)):
            name, at = _bytes(head, at)
            value, at = _bytes(head, at)
            if name == b"avro.schema":
                return value.decode("utf-8", "replace")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Zigzag, seven bits a byte, the lowest first."""
    raw = shift = 0
    while True:
        if at >= len(data):
            raise _TooShort
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _number(data, at)
    if length < 0 or at + length > len(data):
        raise _TooShort
    return data[at : at + length], at + length
