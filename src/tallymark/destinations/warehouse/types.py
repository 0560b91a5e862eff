"""Reads Spark's type texts, for engines that have types of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FLAT = re.compile(r"([a-z_ ]+?)\s*(?:\(([\d,\s]+)\))?")
# Spark can say the same in several ways; `simpleString` uses the right-hand one.
_SAME = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}
_SAME |= {"timestamp_ltz": "timestamp", "numeric": "decimal", "dec": "decimal"}
_TEXTS = {"string", "char", "varchar", "character"}


@dataclass(frozen=True)
class SparkType:
    """`fields` are a struct's; an array has one without a name, a map two."""

    name: str
    sizes: tuple[int, ...] = ()
    fields: tuple[tuple[str, SparkType], ...] = ()

    @property
    def is_nested(self) -> bool:
        return bool(self.fields) or self.name in ("struct", "array", "map")


def parse_type(text: str) -> SparkType:
    outer, bracket, inner = text.strip().partition("<")
    if bracket:
        parts = list(_parts(inner.rstrip().removesuffix(">")))
        match outer.strip().lower():
            case "struct":
                pairs = [part.partition(":") for part in parts]
                return SparkType("struct", (), tuple((name.strip(), parse_type(t)) for name, _, t in pairs))
            case nested:
                return SparkType(nested, (), tuple(("", parse_type(part)) for part in parts))
    found = _FLAT.fullmatch(text.strip().lower())
    if found is None:
        return SparkType(text.strip().lower())
    name = _SAME.get(found[1], found[1])
    if name.split(" ")[0] in _TEXTS:  # also "string collate …": a length or a collation is no other type
        return SparkType("string")
    sizes = tuple(int(size) for size in found[2].split(",")) if found[2] else ()
    return SparkType(name, (10, 0) if name == "decimal" and not sizes else sizes)


def _parts(text: str) -> Iterator[str]:
    """Splits at commas outside of brackets."""
    depth, start = 0, 0
    for i, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    if text[start:].strip():
        yield text[start:]
