"""Text into other types, without loss. Blank text is NULL: many writers quote every field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t


@dataclass(frozen=True)
class Cast:
    """`value` gives the typed value, NULL for NULL. `problem`, from source and typed value, gives the
    reason why it does not fit, NULL where it does; None: every value fits."""

    value: Callable[[Column], Column]
    problem: Callable[[Column, Column], Column] | None = None


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
            return Cast(lambda text: text.cast(target))
        case t.DecimalType():
            return _decimal(target)
        case t.FloatType() | t.DoubleType():
            return _floating(target)
        case t.IntegralType() | t.BooleanType():
            return _parsed(target)
        case t.DateType():
            return _parsed(target, lambda text, typed: ~(_plain_date(text, typed) | text.rlike(_ISO_DATE)))
        case t.TimestampType():
            return _parsed(
                target, lambda text, typed: ~(_plain_timestamp(text, typed) | text.rlike(_ISO_TIMESTAMP))
            )
        case t.TimestampNTZType():
            return _parsed(target, lambda text, _: ~text.rlike(_ISO_NTZ))
    return None


def is_temporal(target: t.DataType) -> bool:
    return isinstance(target, t.DateType | t.TimestampType | t.TimestampNTZType)


def not_a(type_name: str) -> str:
    return f"not {'an' if type_name[0] in 'aeiou' else 'a'} {type_name}"


def _parsed(target: t.DataType, strange: Callable[[Column, Column], Column] | None = None) -> Cast:
    """`strange` refuses what Spark's cast is too kind to."""
    reason = F.lit(not_a(target.simpleString()))

    def problem(text: Column, typed: Column) -> Column:
        found = F.when(typed.isNull(), F.when(_has_text(text), reason))
        return found if strange is None else found.when(strange(text, typed), reason)

    return Cast(lambda text: text.try_cast(target), problem)


def _decimal(target: t.DecimalType) -> Cast:
    name = target.simpleString()

    def problem(text: Column, typed: Column) -> Column:
        point = F.instr(text, ".")
        # Most numbers show at a glance that nothing is rounded; only the others are taken apart.
        suspect = ((point > 0) & (F.length(text) - point > target.scale)) | _contains(text, "eE")
        return F.when(typed.isNull(), F.when(_has_text(text), F.lit(not_a(name)))).when(
            suspect & (_digits_behind_point(text) > target.scale), F.lit(f"{name} would round it")
        )

    return Cast(lambda text: text.try_cast(target), problem)


def _digits_behind_point(text: Column) -> Column:
    """12.50e-3 needs 4: those written (2), less the exponent (-3), less the zeros at the end (1)."""
    mantissa = F.regexp_extract(text, r"^([^eE]*)", 1)
    exponent = F.regexp_extract(text, r"[eE]([+-]?\d+)", 1).try_cast("int")
    written = F.length(F.regexp_extract(mantissa, r"\.(\d*)", 1))
    zeros = F.length(F.regexp_extract(F.regexp_replace(mantissa, r"\D", ""), r"(0*)$", 1))
    is_zero = ~mantissa.rlike("[^0\\W]")
    return F.when(is_zero, F.lit(0)).otherwise(written - F.coalesce(exponent, F.lit(0)) - zeros)


def _floating(target: t.DataType) -> Cast:
    """A fraction becomes the nearest value, as declared. What is refused: Java's suffixes and hex ('1d'),
    numbers too large or too small ('1e400' would be Infinity), whole numbers that would change digits."""
    name = target.simpleString()
    exact_up_to = F.lit(float(2**24 if isinstance(target, t.FloatType) else 2**53))

    def problem(text: Column, typed: Column) -> Column:
        infinite = F.abs(typed) == F.lit(float("inf"))
        says_so = text.rlike(r"(?i)^\W*inf(inity)?\W*$")
        vanished = (typed == 0) & text.rlike(r"^[^eE]*[1-9]")
        changed = (
            (F.abs(typed) >= exact_up_to)
            & text.rlike(rf"^{_BLANK}[+-]?\d+{_BLANK}$")
            & ~(typed.cast("string").try_cast("decimal(38,0)").eqNullSafe(text.try_cast("decimal(38,0)")))
        )
        suffix_or_hex = _contains(text, "dDfFxX") & ~says_so
        return (
            F.when(typed.isNull(), F.when(_has_text(text), F.lit(not_a(name))))
            .when(suffix_or_hex, F.lit(not_a(name)))
            .when((infinite & ~says_so) | vanished | changed, F.lit(f"does not fit {name} without loss"))
        )

    return Cast(lambda text: text.try_cast(target), problem)


def _by_pattern(target: t.DataType, pattern: str) -> Cast:
    """A date is read as a timestamp first: a pattern with a time of day would else lose it."""
    name = target.simpleString()

    def moment(text: Column) -> Column:
        return F.try_to_timestamp(_trimmed(text), F.lit(pattern))

    def problem(text: Column, typed: Column) -> Column:
        reason = F.lit(f"{not_a(name)} in the format {pattern}")
        found = F.when(typed.isNull(), F.when(_has_text(text), reason))
        if isinstance(target, t.DateType):
            lost = typed.cast("timestamp") != moment(text)
            return found.when(lost, F.lit("has a time of day, which a date would lose"))
        return found

    return Cast(lambda text: moment(text).cast(target), problem)


def _plain_date(text: Column, typed: Column) -> Column:
    """2026-11-01, without the cost of a regular expression, given that Spark could read it."""
    dashes = (F.substring(text, 5, 1) == "-") & (F.substring(text, 8, 1) == "-")
    return (F.length(text) == 10) & dashes & (typed >= F.lit("0001-01-01").cast("date"))


def _plain_timestamp(text: Column, typed: Column) -> Column:
    """2026-11-01T10:20:30, with a zone or a fraction; up to 25 characters have no seventh digit of it."""
    dashes = (F.substring(text, 5, 1) == "-") & (F.substring(text, 8, 1) == "-")
    colons = (F.substring(text, 14, 1) == ":") & (F.substring(text, 17, 1) == ":")
    return (F.length(text) <= 25) & dashes & colons & (typed >= F.lit("0001-01-01").cast("timestamp"))


def _contains(text: Column, letters: str) -> Column:
    return reduce(or_, (F.contains(text, F.lit(letter)) for letter in letters))


def _trimmed(text: Column) -> Column:
    return F.btrim(text, F.lit(_BLANKS))


def _has_text(text: Column) -> Column:
    return _trimmed(text) != ""
