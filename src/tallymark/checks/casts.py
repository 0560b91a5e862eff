"""Casts without loss: what a value becomes in another type, and why it cannot.

Spark's own casts round ('1.239' into decimal(12,2)), clamp (2^63 into bigint), truncate ('2026-11-01 10:00'
into a date), drop (the zone of a timestamp_ntz) and invent ('10:00' gets today's date). Each rule below
reports such a value as a problem of its row. A pair of types that has no cast without loss raises `NoCast`,
before any row is read.

1. declared types   from a text to Spark's type
2. between types    cast, cast back, compare; nested types field by field
3. from text        what is a number, a date, a timestamp. Blank text is NULL: many writers quote every field
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import types as t

from tallymark.model.types import (
    ArrayOf,
    MapOf,
    Primitive,
    SparkType,
    StructOf,
    Unparsed,
    literal,
    named,
    options,
    parse_type,
    quoted,
)

Sql = str  # an expression of Spark SQL

_CASTABLE: dict[str, type[t.DataType]] = {
    "tinyint": t.ByteType,
    "smallint": t.ShortType,
    "int": t.IntegerType,
    "bigint": t.LongType,
    "float": t.FloatType,
    "double": t.DoubleType,
    "boolean": t.BooleanType,
    "string": t.StringType,
    "binary": t.BinaryType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
}
_WHOLE: dict[type[t.DataType], int] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 19}
_FLOATING = (t.FloatType, t.DoubleType)
_MOMENTS = (t.TimestampType, t.TimestampNTZType)
_NESTED = (t.StructType, t.ArrayType, t.MapType)
_TWO_TO_63 = float(2**63)

# Spark's default JSON has milliseconds only, and leaves NULL fields out.
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}

_BLANKS = "".join(map(chr, (*range(1, 33), 127)))  # what Spark's casts trim
_DAY = r"(?!0000)\d{4}-\d{1,2}-\d{1,2}"  # four digits: Python, and so every report, ends at 9999
_TIME = r"\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{0,6}0*)?)?"
_ZONE = r"(\s*[A-Za-z+-].*)?"
_BLANK = r"[\x00-\x20\x7f]*"
_ISO_DATE = f"^{_BLANK}{_DAY}{_BLANK}$"
_ISO_NTZ = f"^{_BLANK}{_DAY}([T ]{_TIME})?{_BLANK}$"
_ISO_TIMESTAMP = f"^{_BLANK}{_DAY}([T ]{_TIME}{_ZONE})?{_BLANK}$"


@dataclass(frozen=True)
class Cast:
    """`value` gives the typed value, NULL for NULL. `problem` takes source and typed value and gives the
    reason why the value does not fit, NULL if it does. It is None if every value fits."""

    value: Callable[[Sql], Sql]
    problem: Callable[[Sql, Sql], Sql] | None = None


@dataclass(frozen=True)
class NoCast(Exception):
    """`path` is the nested field at fault, empty for the column itself."""

    source: t.DataType
    target: t.DataType
    path: str = ""


# 1. declared types


def data_type(text: str) -> t.DataType:
    """Raises ValueError, also for types of Spark that values cannot be cast to."""
    return _data_type(parse_type(text))


def _data_type(parsed: SparkType) -> t.DataType:
    match parsed:
        case Primitive(name="decimal", sizes=(precision, scale)):
            return t.DecimalType(precision, scale)
        case Primitive(name=name, collation="") if name in _CASTABLE:
            return _CASTABLE[name]()
        case ArrayOf(element=element):
            return t.ArrayType(_data_type(element))
        case MapOf(key=key, value=value):
            return t.MapType(_data_type(key), _data_type(value))
        case StructOf(members=members):
            return t.StructType([t.StructField(m.name, _data_type(m.type)) for m in members])
        case Primitive() | Unparsed():
            raise ValueError(f"values cannot be cast to {parsed}")


# 2. between types


def lossless(source: t.DataType, target: t.DataType, pattern: str | None = None) -> Cast:
    """`pattern` is the format of a date or timestamp in text."""
    if pattern is None and _same(source, target):
        return Cast(lambda value: value)
    match source:
        case t.StringType():
            cast = from_text(target, pattern)
            if cast is None:
                raise NoCast(source, target)
            return cast
        case t.BinaryType() if isinstance(target, t.StringType):
            return _bytes_to_text()
        case t.BooleanType() | t.NumericType() | t.DateType() | t.TimestampType() | t.TimestampNTZType():
            checked = _checked(source, target)
            if checked is not None:
                return checked
    return Cast(_promotion(source, target))


def _bytes_to_text() -> Cast:
    return Cast(
        lambda value: f"CAST({value} AS string)",
        lambda _, text: f"CASE WHEN NOT is_valid_utf8({text}) THEN 'not valid UTF-8' END",
    )


def _checked(source: t.DataType, target: t.DataType) -> Cast | None:
    """For pairs of types of which some values fit: cast, cast back, compare. None for others: see
    `_promotion`."""
    if _always_fits(source, target):
        return None
    if isinstance(source, t.NumericType) and isinstance(target, t.NumericType):
        return _there_and_back(source, target, f"does not fit {target.simpleString()} without loss")
    if type(source) in _WHOLE and isinstance(target, t.BooleanType):
        return _there_and_back(source, target, "not a boolean: only 0 and 1 are")
    if isinstance(source, _MOMENTS) and isinstance(target, t.DateType):
        return _there_and_back(source, target, "has a time of day, which a date would lose")
    return None


def _there_and_back(source: t.DataType, target: t.DataType, reason: str) -> Cast:
    def problem(value: Sql, typed: Sql) -> Sql:
        lost = f"NOT (try_cast({typed} AS {type_text(source)}) <=> {value})"
        # Spark clamps the double 2^63 to the bigint 2^63-1, which casts back to the same double.
        if isinstance(source, _FLOATING) and isinstance(target, t.LongType):
            lost = f"({lost} OR {value} >= {double(_TWO_TO_63)})"
        if isinstance(source, t.LongType) and isinstance(target, _FLOATING):
            lost = f"({lost} OR {typed} >= {double(_TWO_TO_63)})"
        return f"CASE WHEN {value} IS NOT NULL AND {lost} THEN {literal(reason)} END"

    return Cast(lambda value: f"try_cast({value} AS {type_text(target)})", problem)


def _always_fits(source: t.DataType, target: t.DataType) -> bool:
    """Every value of `source` is a value of `target`."""
    match source, target:
        case t.NullType(), _:
            return True
        case ((t.BinaryType() | t.StructType() | t.ArrayType() | t.MapType() | t.VariantType()), _):
            return False
        case _, t.StringType():
            return True
        case t.DecimalType(), t.DecimalType():
            whole = source.precision - source.scale <= target.precision - target.scale
            return whole and source.scale <= target.scale
        case t.IntegralType(), t.DecimalType():
            return target.precision - target.scale >= _WHOLE[type(source)]
        case t.IntegralType(), t.IntegralType():
            return _WHOLE[type(source)] <= _WHOLE[type(target)]
        case t.IntegralType(), t.DoubleType():
            return not isinstance(source, t.LongType)
        case ((t.ByteType() | t.ShortType()), t.FloatType()):
            return True
        case t.FloatType(), t.DoubleType():
            return True
        case (
            (t.DateType() | t.TimestampType() | t.TimestampNTZType()),
            (t.TimestampType() | t.TimestampNTZType()),
        ):
            return True  # the session is in UTC
    return False


def _promotion(source: t.DataType, target: t.DataType, path: str = "") -> Callable[[Sql], Sql]:
    """A cast that is right for every value, field by field: Spark itself casts structs by position."""
    if _same(source, target):
        return lambda value: value
    if _always_fits(source, target):
        return lambda value: f"CAST({value} AS {type_text(target)})"
    match source, target:
        case ((t.StructType() | t.ArrayType() | t.MapType() | t.VariantType()), t.StringType()):
            return lambda value: f"to_json({value}, {options(JSON_OPTIONS)})"
        case t.ArrayType(), t.ArrayType():
            element = _promotion(source.elementType, target.elementType, f"{path}[]")
            return lambda value: _transformed("transform", value, element)
        case t.MapType(), t.MapType():
            key = _promotion(source.keyType, target.keyType, f"{path}.key")
            item = _promotion(source.valueType, target.valueType, f"{path}.value")
            return lambda value: _transformed(
                "transform_values", _transformed("transform_keys", value, key), item
            )
        case t.StructType(), t.StructType():
            return _struct(source, target, path)
    raise NoCast(source, target, path.lstrip("."))


def _transformed(function: str, value: Sql, promote: Callable[[Sql], Sql]) -> Sql:
    """Nested functions use the same argument names; the inner one sees its own."""
    arguments = {
        "transform": "_tm_part",
        "transform_keys": "(_tm_part, _tm_other)",
        "transform_values": "(_tm_other, _tm_part)",
    }
    return f"{function}({value}, {arguments[function]} -> {promote('_tm_part')})"


def _struct(source: t.StructType, target: t.StructType, path: str) -> Callable[[Sql], Sql]:
    """Fields match by name. One that the source lacks is NULL; one that the target lacks raises NoCast."""
    given = {field.name.casefold(): field for field in source.fields}
    wanted = {field.name.casefold() for field in target.fields}
    if extra := [field for name, field in given.items() if name not in wanted]:
        raise NoCast(extra[0].dataType, t.NullType(), f"{path}.{extra[0].name}".lstrip("."))
    makers: list[Callable[[Sql], Sql]] = []
    for field in target.fields:
        found = given.get(field.name.casefold())
        makers.append(_missing(field) if found is None else _field(found, field, path))

    def made(value: Sql) -> Sql:
        return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(m(value) for m in makers)}) END"

    return made


def _missing(field: t.StructField) -> Callable[[Sql], Sql]:
    return lambda _: named(f"CAST(NULL AS {type_text(field.dataType)})", field.name)


def _field(source: t.StructField, target: t.StructField, path: str) -> Callable[[Sql], Sql]:
    promote = _promotion(source.dataType, target.dataType, f"{path}.{source.name}")
    return lambda value: named(promote(f"{value}.{quoted(source.name)}"), target.name)


def type_text(target: t.DataType) -> Sql:
    """For SQL: names of fields are quoted, and `timestamp` is spelled so that no session setting changes
    it."""
    match target:
        case t.TimestampType():
            return "timestamp_ltz"
        case t.ArrayType():
            return f"array<{type_text(target.elementType)}>"
        case t.MapType():
            return f"map<{type_text(target.keyType)},{type_text(target.valueType)}>"
        case t.StructType():
            fields = (f"{quoted(field.name)}:{type_text(field.dataType)}" for field in target.fields)
            return f"struct<{','.join(fields)}>"
    return target.simpleString()


def _same(source: t.DataType, target: t.DataType) -> bool:
    return source.simpleString() == target.simpleString()


# 3. from text


def from_text(target: t.DataType, pattern: str | None) -> Cast | None:
    """None if text cannot be cast to that type."""
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


def not_a(type_name: str) -> str:
    return f"not {'an' if type_name[0] in 'aeiou' else 'a'} {type_name}"


def _try_cast(target: t.DataType) -> Callable[[Sql], Sql]:
    return lambda text: f"try_cast({text} AS {type_text(target)})"


def _parsed(target: t.DataType, strange: Callable[[Sql, Sql], Sql] | None = None) -> Cast:
    """`strange` is true for a value that Spark's cast accepts and that is refused here."""
    reason = not_a(target.simpleString())

    def problem(text: Sql, typed: Sql) -> Sql:
        more = "" if strange is None else f" WHEN {strange(text, typed)} THEN {literal(reason)}"
        return f"CASE {_not_parsed(text, typed, reason)}{more} END"

    return Cast(_try_cast(target), problem)


def _decimal(target: t.DecimalType) -> Cast:
    name = target.simpleString()

    def problem(text: Sql, typed: Sql) -> Sql:
        point = f"instr({text}, '.')"
        # Most numbers are too short to be rounded; only the others are parsed.
        long = f"{point} > 0 AND length({text}) - {point} > {target.scale}"
        suspect = f"({long} OR {_contains(text, 'eE')})"
        return (
            f"CASE {_not_parsed(text, typed, not_a(name))} "
            f"WHEN {suspect} AND {_digits_behind_point(text)} > {target.scale} "
            f"THEN {literal(f'{name} would round it')} END"
        )

    return Cast(_try_cast(target), problem)


def _digits_behind_point(text: Sql) -> Sql:
    """12.50e-3 needs 4: 2 that are written, minus the exponent -3, minus 1 zero at the end."""
    mantissa = _extract(text, "^([^eE]*)")
    exponent = _extract(text, r"[eE]([+-]?\d+)")
    written = _extract(mantissa, r"\.(\d*)")
    not_a_digit = literal(r"\D")
    zeros = _extract(f"regexp_replace({mantissa}, {not_a_digit}, '')", "(0*)$")
    not_zero = _like(mantissa, r"[^0\W]")
    needed = f"length({written}) - coalesce(try_cast({exponent} AS int), 0) - length({zeros})"
    return f"CASE WHEN NOT {not_zero} THEN 0 ELSE {needed} END"


def _floating(target: t.DataType) -> Cast:
    """A fraction becomes the nearest value. Refused are Java's suffixes and hex ('1d'), numbers that are too
    large or too small ('1e400' would be Infinity), and whole numbers whose digits would change."""
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
    """A date is read as a timestamp first, so that a time of day is noticed."""
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
    """2026-11-01, given that Spark could read it; cheaper than a regular expression."""
    dashes = f"substring({text}, 5, 1) = '-' AND substring({text}, 8, 1) = '-'"
    return f"(length({text}) = 10 AND {dashes} AND {typed} >= CAST('0001-01-01' AS date))"


def _plain_timestamp(text: Sql, typed: Sql) -> Sql:
    """2026-11-01T10:20:30 with a zone or a fraction; 25 characters have no room for a seventh digit of it."""
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
