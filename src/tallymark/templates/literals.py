"""Values as Spark SQL literals. There is no way to print a value as bare text.

Quotes are escaped by a backslash, because versions of Spark read doubled quotes differently. `$` is written
as a code point, because Spark can replace `${env:NAME}` in the text of a query (our sessions have that off).
Line ends are too, so that a value takes up one line of the query.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal

from tallymark.model import types
from tallymark.templates.context import SqlText, TemplateFault, TypedValue

MOST_DIGITS = 38  # of a Spark decimal
_ESCAPED = re.compile(r"[\\'$\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NUMBERS = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal\(\d+,\s*\d+\))", re.IGNORECASE)


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
            raise TemplateFault(
                f"{_kind(value)} cannot be printed into a query", "print a string, a number, a date or a list"
            )


def quoted(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise TemplateFault("the string contains an unpaired surrogate, which is not a character")
    return f"'{_ESCAPED.sub(_escape, text)}'"


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return f"\\{char}" if char in "\\'" else f"\\u{ord(char):04X}"


def identifier(value: object) -> SqlText:
    """A name in backticks, whatever is in it; for a list, several with commas between them."""
    if isinstance(value, list | tuple):
        if not value:
            raise TemplateFault("a list of names is empty")
        return SqlText(", ".join(identifier(item).text for item in value))
    if isinstance(value, TypedValue):
        value = value.value
    if not isinstance(value, str):
        raise TemplateFault(f"identifier needs a string, found {_kind(value)}")
    if not value or _NOT_IN_NAMES.search(value) or "${" in value:
        raise TemplateFault("the string cannot be a name: it is empty, or contains control characters or ${")
    return SqlText(types.quoted(value))


def _typed(typed: TypedValue) -> str:
    """Only numbers are cast: the literals of strings and times already have their type."""
    text = literal(typed.value)
    return f"CAST({text} AS {typed.type.upper()})" if _NUMBERS.fullmatch(typed.type) else text


def _digits(number: int) -> str:
    if abs(number) >= 10**MOST_DIGITS:
        raise TemplateFault(f"Spark has no type for a number of more than {MOST_DIGITS} digits")
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
        raise TemplateFault(f"Spark has no decimal {number}")
    text = format(number, "f")
    whole, _, fraction = text.lstrip("-").partition(".")
    precision = max(1, len(whole.lstrip("0")) + len(fraction))
    if precision > MOST_DIGITS:
        raise TemplateFault(f"Spark has no type for a number of more than {MOST_DIGITS} digits")
    return f"CAST('{text}' AS DECIMAL({precision},{len(fraction)}))"


def _timestamp(moment: datetime) -> str:
    """With a zone it is an instant, whatever the zone of the session; without one it is a local time."""
    if moment.tzinfo is None:
        return f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ', timespec='microseconds')}'"
    return f"TIMESTAMP '{moment.astimezone(UTC).isoformat(sep=' ', timespec='microseconds')}'"


def _listed(values: list[object] | tuple[object, ...]) -> str:
    if not values:
        raise TemplateFault("the list is empty, and SQL has no empty list", "guard it with {% if … %}")
    if any(isinstance(value, list | tuple) for value in values):
        raise TemplateFault("a nested list cannot be printed into a query")
    return ", ".join(map(literal, values))


def _kind(value: object) -> str:
    match value:
        case dict():
            return "a mapping"
        case bytes():
            return "a binary value"
        case _ if callable(value):
            return "a function without ( )"
        case _:
            return f"a value of type {type(value).__name__}"
