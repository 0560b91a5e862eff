"""Spark SQL type names, read without a JVM, so that `validate` can judge them before Spark starts."""

from __future__ import annotations

import re

from pyspark.sql import types as t

_SIMPLE: dict[str, type[t.DataType]] = {
    "tinyint": t.ByteType,
    "byte": t.ByteType,
    "smallint": t.ShortType,
    "short": t.ShortType,
    "int": t.IntegerType,
    "integer": t.IntegerType,
    "bigint": t.LongType,
    "long": t.LongType,
    "float": t.FloatType,
    "real": t.FloatType,
    "double": t.DoubleType,
    "boolean": t.BooleanType,
    "string": t.StringType,
    "binary": t.BinaryType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ltz": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
}
_DECIMAL = {"decimal", "dec", "numeric"}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
KNOWN_TYPES = (*_SIMPLE, "decimal", "array", "map", "struct")


def parse_type(text: str) -> t.DataType:
    """ValueError says what is wrong with it. Bare `decimal` is Spark's decimal(10,0)."""
    parser = _Parser(text)
    found = parser.type()
    parser.end()
    return found


class _Parser:
    """Recursive descent over `name`, `name(n[,n])`, `array<t>`, `map<t,t>` and `struct<name:t,…>`."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0

    def type(self) -> t.DataType:
        name = self.word().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in _DECIMAL:
            return self.decimal()
        match name:
            case "array":
                self.expect("<")
                array = t.ArrayType(self.type())
                self.expect(">")
                return array
            case "map":
                self.expect("<")
                key = self.type()
                self.expect(",")
                mapped = t.MapType(key, self.type())
                self.expect(">")
                return mapped
            case "struct":
                return self.struct()
        raise ValueError(f"{name} is not a type")

    def decimal(self) -> t.DecimalType:
        if not self.take("("):
            return t.DecimalType(10, 0)
        precision = self.number()
        scale = self.number() if self.take(",") else 0
        self.expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(
                "a decimal has 1 to 38 digits, and not more of them behind the point than in all"
            )
        return t.DecimalType(precision, scale)

    def struct(self) -> t.StructType:
        self.expect("<")
        fields = [self.field()]
        while self.take(","):
            fields.append(self.field())
        self.expect(">")
        return t.StructType(fields)

    def field(self) -> t.StructField:
        name = self.word()
        self.take(":")
        return t.StructField(name, self.type())

    def word(self) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at][1]:
            self.at += 1
            return self.tokens[self.at - 1][0]
        raise ValueError(
            "a name is missing" if self.at == len(self.tokens) else f"{self.here()} is misplaced"
        )

    def number(self) -> int:
        word = self.word()
        if not word.isascii() or not word.isdigit():
            raise ValueError(f"{word} is not a number")
        return int(word)

    def take(self, symbol: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == (symbol, False):
            self.at += 1
            return True
        return False

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise ValueError(f"{symbol} is missing")

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise ValueError(f"{self.here()} is too much")

    def here(self) -> str:
        return self.tokens[self.at][0]


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Each token, and whether it is a name."""
    text = text.strip()
    tokens: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"{text[at]!r} is misplaced")
        quoted, word, symbol = found.groups()
        tokens.append((symbol, False) if symbol else (word or quoted.replace("``", "`"), True))
        at = found.end()
    return tokens
