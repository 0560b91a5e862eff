"""Values as Spark SQL literals. There is no way to print a value as bare text.

A backslash is an escape inside of Spark's string literals, and two quotes are read differently by its
versions, so quotes are escaped by a backslash. `$` is written as a code point, since Spark would replace
`${env:NAME}` in the text of a query before it looks for literals; line ends are, so that a value takes up
one line of the query.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import total_ordering

from tallymark.templates.faults import Fault

MOST_DIGITS = 38  # of a Spark decimal
_ESCAPED = re.compile(r"[\\'$\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NUMBERS = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal\(\d+,\s*\d+\))", re.IGNORECASE)


@dataclass(frozen=True)
class SqlText:
    """A piece of SQL that Tallymark made: a relation or a quoted name. It is printed as it is."""

    text: str

    def __str__(self) -> str:
        return self.text


@total_ordering
@dataclass(frozen=True, eq=False)
class TypedValue:
    """A value with the type of the column it came from; in a template it compares as the value does."""

    value: object
    type: str

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, TypedValue) else other)

    def __lt__(self, other: object) -> bool:
        return bool(self.value < (other.value if isinstance(other, TypedValue) else other))  # type: ignore[operator]

    def __hash__(self) -> int:
        return hash(self.value)


def literal(value: object) -> str:
    match value:
        case SqlText():
            return value.text
        case TypedValue():
            return _typed(value)
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return _signed(_digits(value))
        case float():
            return _double(value)
        case Decimal():
            return _decimal(value)
        case datetime():
            return _timestamp(value)
        case date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return quoted(value)
        case list() | tuple():
            return _listed(value)
        case _:
            raise Fault(
                f"{_kind(value)} cannot be put into a query", "print a text, a number, a date or a list"
            )


def quoted(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise Fault("the text holds half of a surrogate pair, which is no character")
    return f"'{_ESCAPED.sub(_escape, text)}'"


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return f"\\{char}" if char in "\\'" else f"\\u{ord(char):04X}"


def identifier(value: object) -> SqlText:
    """A name in backticks, whatever is in it; several with commas for a list."""
    if isinstance(value, list | tuple):
        if not value:
            raise Fault("a list of names is empty")
        return SqlText(", ".join(identifier(item).text for item in value))
    if isinstance(value, TypedValue):
        value = value.value
    if not isinstance(value, str):
        raise Fault(f"identifier needs a text, found {_kind(value)}")
    if not value or _NOT_IN_NAMES.search(value) or "${" in value:
        raise Fault("the text cannot be a name: it is empty or holds characters that no name has")
    return SqlText("`" + value.replace("`", "``") + "`")


def _typed(typed: TypedValue) -> str:
    """Numbers have many types in Spark; texts and times have the one that they show."""
    text = literal(typed.value)
    return f"CAST({text} AS {typed.type.upper()})" if _NUMBERS.fullmatch(typed.type) else text


def _digits(number: int) -> str:
    if abs(number) >= 10**MOST_DIGITS:
        raise Fault(f"a number of more than {MOST_DIGITS} digits does not fit into Spark's types")
    return str(number)


def _signed(digits: str) -> str:
    """`a -{{ n }}` must not become a comment."""
    return f"({digits})" if digits.startswith("-") else digits


def _double(number: float) -> str:
    if math.isnan(number):
        return "CAST('NaN' AS DOUBLE)"
    if math.isinf(number):
        return f"CAST('{'-' if number < 0 else ''}Infinity' AS DOUBLE)"
    return f"CAST('{number!r}' AS DOUBLE)"


def _decimal(number: Decimal) -> str:
    if not number.is_finite():
        raise Fault(f"{number} is not a decimal that Spark has")
    text = format(number, "f")
    whole, _, fraction = text.lstrip("-").partition(".")
    precision = max(1, len(whole.lstrip("0")) + len(fraction))
    if precision > MOST_DIGITS:
        raise Fault(f"a number of more than {MOST_DIGITS} digits does not fit into Spark's types")
    return f"CAST('{text}' AS DECIMAL({precision},{len(fraction)}))"


def _timestamp(moment: datetime) -> str:
    """With its zone it is an instant, whatever zone the session has; without one it is a wall clock's."""
    if moment.tzinfo is None:
        return f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ', timespec='microseconds')}'"
    return f"TIMESTAMP '{moment.astimezone(UTC).isoformat(sep=' ', timespec='microseconds')}'"


def _listed(values: list[object] | tuple[object, ...]) -> str:
    if not values:
        raise Fault("the list is empty, and SQL has no empty list", "guard it by {% if … %}")
    if any(isinstance(value, list | tuple) for value in values):
        raise Fault("a list in a list cannot be put into a query")
    return ", ".join(map(literal, values))


def _kind(value: object) -> str:
    match value:
        case dict():
            return "a mapping"
        case bytes():
            return "a binary value"
        case _ if callable(value):
            return "a function without its ( )"
        case _:
            return f"a value of type {type(value).__name__}"
