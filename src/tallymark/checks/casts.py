"""Casts that never lose: what a value becomes in another type, and why it cannot.

Spark's own casts round ('1.239' into decimal(12,2)), clamp (2^63 into bigint), cut ('2026-11-01 10:00'
into a date), forget (the zone of a timestamp_ntz) and invent ('10:00' gets today's date). Each rule
below names such a case as a problem of the row. A pair of types with no lossless meaning at all raises
`NoCast`, before any row is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import types as t

from tallymark.checks.text import Cast, Sql, double, from_text
from tallymark.checks.text import type_text as simple_type_text
from tallymark.model.sql_text import literal, named, options, quoted

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


@dataclass(frozen=True)
class NoCast(Exception):
    """`path` is the nested field at fault, empty for the column itself."""

    source: t.DataType
    target: t.DataType
    path: str = ""


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
    """Pairs of which some values fit: cast, cast back, compare. None: see `_promotion`."""
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
        # Spark clamps the double 2^63 to the bigint 2^63-1, which then seems to come back unharmed.
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
    """A cast that holds for every value, field by field: Spark's own casts structs by position."""
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
    """A function inside of another has arguments of the same names, and sees its own."""
    arguments = {
        "transform": "_tm_part",
        "transform_keys": "(_tm_part, _tm_other)",
        "transform_values": "(_tm_other, _tm_part)",
    }
    return f"{function}({value}, {arguments[function]} -> {promote('_tm_part')})"


def _struct(source: t.StructType, target: t.StructType, path: str) -> Callable[[Sql], Sql]:
    """Fields match by name; one that the source lacks is NULL; one that the target lacks would be lost."""
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
    match target:
        case t.ArrayType():
            return f"array<{type_text(target.elementType)}>"
        case t.MapType():
            return f"map<{type_text(target.keyType)},{type_text(target.valueType)}>"
        case t.StructType():
            fields = (f"{quoted(field.name)}:{type_text(field.dataType)}" for field in target.fields)
            return f"struct<{','.join(fields)}>"
    return simple_type_text(target)


def _same(source: t.DataType, target: t.DataType) -> bool:
    return source.simpleString() == target.simpleString()
