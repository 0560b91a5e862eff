"""Text into other types, without loss. Blank text is NULL: many writers quote every field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import types as t

from tallymark.model.sql_text import literal

Sql = str  # an expression of Spark SQL


@dataclass(frozen=True)
class Cast:
    """`value` gives the typed value, NULL for NULL. `problem`, from source and typed value, gives the
    reason why it does not fit, NULL where it does; None: every value fits."""

    value: Callable[[Sql], Sql]
    problem: Callable[[Sql, Sql], Sql] | None = None


_BLANKS = "".join(map(chr, (*range(1, 33), 127)))  # what Spark's casts trim
_DAY = r"(?!0000)\d{4}-\d{1,2}-\d{1,2}"  # four digits: Python, and so every report, ends at 9999
_TIME = r"\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{0,6}0*)?)?"
_ZONE = r"(\s*[A-Za-z+-].*)?"
_BLANK = r"[\x00-\x20\x7f]*"
_ISO_DATE = f"^{_BLANK}{_DAY}{_BLANK}$"
_ISO_NTZ = f"^{_BLANK}{_DAY}([T ]{_TIME})?{_BLANK}$"
_ISO_TIMESTAMP = f"^{_BLANK}{_DAY}([T ]{_TIME}{_ZONE})?{_BLANK}$"


def from_text(target: t.DataType, pattern: str | None) -> Cast | None:
    """None: text has no meaning in that type."""
    if pattern is not None:
        return _by_pattern(target, pattern) if is_temporal(target) else None
    match target:
        case t.StringType() | t.BinaryType():
            return Cast(lambda text: f"CAST({text} AS {type_text(target)})")
        case t.DecimalType():
            return _decimal(target)
        case t.FloatType() | t.DoubleType():
            return _floating(target)
        case t.IntegralType() | t.BooleanType():
            return _parsed(target)
        case t.DateType():
            return _parsed(
                target, lambda text, typed: f"NOT ({_plain_date(text, typed)} OR {_like(text, _ISO_DATE)})"
            )
        case t.TimestampType():
            return _parsed(
                target,
                lambda text, typed: f"NOT ({_plain_timestamp(text, typed)} OR {_like(text, _ISO_TIMESTAMP)})",
            )
        case t.TimestampNTZType():
            return _parsed(target, lambda text, _: f"NOT {_like(text, _ISO_NTZ)}")
    return None


def is_temporal(target: t.DataType) -> bool:
    return isinstance(target, t.DateType | t.TimestampType | t.TimestampNTZType)


def type_text(target: t.DataType) -> Sql:
    """`timestamp` alone is whatever the session takes it for."""
    return "timestamp_ltz" if isinstance(target, t.TimestampType) else target.simpleString()


def not_a(type_name: str) -> str:
    return f"not {'an' if type_name[0] in 'aeiou' else 'a'} {type_name}"


def _try_cast(target: t.DataType) -> Callable[[Sql], Sql]:
    return lambda text: f"try_cast({text} AS {type_text(target)})"


def _parsed(target: t.DataType, strange: Callable[[Sql, Sql], Sql] | None = None) -> Cast:
    """`strange` refuses what Spark's cast is too kind to."""
    reason = not_a(target.simpleString())

    def problem(text: Sql, typed: Sql) -> Sql:
        more = "" if strange is None else f" WHEN {strange(text, typed)} THEN {literal(reason)}"
        return f"CASE {_not_parsed(text, typed, reason)}{more} END"

    return Cast(_try_cast(target), problem)


def _decimal(target: t.DecimalType) -> Cast:
    name = target.simpleString()

    def problem(text: Sql, typed: Sql) -> Sql:
        point = f"instr({text}, '.')"
        # Most numbers show at a glance that nothing is rounded; only the others are taken apart.
        long = f"{point} > 0 AND length({text}) - {point} > {target.scale}"
        suspect = f"({long} OR {_contains(text, 'eE')})"
        return (
            f"CASE {_not_parsed(text, typed, not_a(name))} "
            f"WHEN {suspect} AND {_digits_behind_point(text)} > {target.scale} "
            f"THEN {literal(f'{name} would round it')} END"
        )

    return Cast(_try_cast(target), problem)


def _digits_behind_point(text: Sql) -> Sql:
    """12.50e-3 needs 4: those written (2), less the exponent (-3), less the zeros at the end (1)."""
    mantissa = _extract(text, "^([^eE]*)")
    exponent = _extract(text, r"[eE]([+-]?\d+)")
    written = _extract(mantissa, r"\.(\d*)")
    not_a_digit = literal(r"\D")
    zeros = _extract(f"regexp_replace({mantissa}, {not_a_digit}, '')", "(0*)$")
    not_zero = _like(mantissa, r"[^0\W]")
    needed = f"length({written}) - coalesce(try_cast({exponent} AS int), 0) - length({zeros})"
    return f"CASE WHEN NOT {not_zero} THEN 0 ELSE {needed} END"


def _floating(target: t.DataType) -> Cast:
    """A fraction becomes the nearest value, as declared. What is refused: Java's suffixes and hex ('1d'),
    numbers too large or too small ('1e400' would be Infinity), whole numbers that would change digits."""
    name = target.simpleString()
    exact_up_to = double(float(2**24 if isinstance(target, t.FloatType) else 2**53))

    def problem(text: Sql, typed: Sql) -> Sql:
        infinite = f"abs({typed}) = double('Infinity')"
        says_so = _like(text, r"(?i)^\W*inf(inity)?\W*$")
        vanished = f"({typed} = 0 AND {_like(text, '^[^eE]*[1-9]')})"
        whole = _like(text, rf"^{_BLANK}[+-]?\d+{_BLANK}$")
        digits = f"try_cast(CAST({typed} AS string) AS decimal(38,0))"
        same = f"({digits} <=> try_cast({text} AS decimal(38,0)))"
        changed = f"(abs({typed}) >= {exact_up_to} AND {whole} AND NOT {same})"
        suffix_or_hex = f"{_contains(text, 'dDfFxX')} AND NOT {says_so}"
        return (
            f"CASE {_not_parsed(text, typed, not_a(name))} "
            f"WHEN {suffix_or_hex} THEN {literal(not_a(name))} "
            f"WHEN ({infinite} AND NOT {says_so}) OR {vanished} OR {changed} "
            f"THEN {literal(f'does not fit {name} without loss')} END"
        )

    return Cast(_try_cast(target), problem)


def _by_pattern(target: t.DataType, pattern: str) -> Cast:
    """A date is read as a timestamp first: a pattern with a time of day would else lose it."""
    reason = f"{not_a(target.simpleString())} in the format {pattern}"

    def moment(text: Sql) -> Sql:
        return f"try_to_timestamp({_trimmed(text)}, {literal(pattern)})"

    def problem(text: Sql, typed: Sql) -> Sql:
        more = ""
        if isinstance(target, t.DateType):
            lost = f"CAST({typed} AS timestamp) <> {moment(text)}"
            more = f" WHEN {lost} THEN 'has a time of day, which a date would lose'"
        return f"CASE {_not_parsed(text, typed, reason)}{more} END"

    return Cast(lambda text: f"CAST({moment(text)} AS {type_text(target)})", problem)


def double(value: float) -> Sql:
    return f"{value!r}D"


def _not_parsed(text: Sql, typed: Sql, reason: str) -> Sql:
    """The first branch of a CASE."""
    return f"WHEN {typed} IS NULL THEN CASE WHEN {_trimmed(text)} <> '' THEN {literal(reason)} END"


def _plain_date(text: Sql, typed: Sql) -> Sql:
    """2026-11-01, without the cost of a regular expression, given that Spark could read it."""
    dashes = f"substring({text}, 5, 1) = '-' AND substring({text}, 8, 1) = '-'"
    return f"(length({text}) = 10 AND {dashes} AND {typed} >= CAST('0001-01-01' AS date))"


def _plain_timestamp(text: Sql, typed: Sql) -> Sql:
    """2026-11-01T10:20:30, with a zone or a fraction; up to 25 characters have no seventh digit of it."""
    dashes = f"substring({text}, 5, 1) = '-' AND substring({text}, 8, 1) = '-'"
    colons = f"substring({text}, 14, 1) = ':' AND substring({text}, 17, 1) = ':'"
    since = f"{typed} >= CAST('0001-01-01' AS timestamp)"
    return f"(length({text}) <= 25 AND {dashes} AND {colons} AND {since})"


def _like(text: Sql, pattern: str) -> Sql:
    return f"({text} RLIKE {literal(pattern)})"


def _extract(text: Sql, pattern: str) -> Sql:
    return f"regexp_extract({text}, {literal(pattern)}, 1)"


def _contains(text: Sql, letters: str) -> Sql:
    return "(" + " OR ".join(f"contains({text}, '{letter}')" for letter in letters) + ")"


def _trimmed(text: Sql) -> Sql:
    return f"btrim({text}, {literal(_BLANKS)})"
