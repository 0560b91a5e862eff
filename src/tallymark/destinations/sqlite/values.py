"""Values between Arrow or Python and SQLite, which stores many types as texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from tallymark.destinations.warehouse.engine import NativeColumn, Row
from tallymark.destinations.warehouse.transfer import (
    date_texts,
    decimal_texts,
    local_wall_clock,
    timestamp_texts,
)
from tallymark.errors import RowsRefused
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import stored_type

_YEAR_ZERO = "0000-"  # Python's calendar begins with the year 1, Spark's and Arrow's do not
_DAYS_OF_400_YEARS = 146_097


def stored(array: pa.Array, column: NativeColumn) -> Sequence[object]:
    """Values as SQLite stores them."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return decimal_texts(array)
    if pa.types.is_timestamp(kind):
        texts = timestamp_texts(array)
        _refuse_far_years(texts, column.name)
        return texts
    if pa.types.is_date(kind):
        texts = date_texts(array)
        _refuse_far_years(texts, column.name)
        return texts
    values: list[Any] = array.to_pylist()
    if pa.types.is_floating(kind):
        return ["NaN" if value is not None and math.isnan(value) else value for value in values]
    return values


def _refuse_far_years(texts: Sequence[str | None], column: str) -> None:
    """Texts sort like the times only if every year has four digits."""
    for text in texts:
        if text is not None and (text[4:5] != "-" or text[0] == "-"):
            raise RowsRefused(
                f"column {column}: {text} is not in the years 0 to 9999, and SQLite could not sort it",
                hint=f"give {column} a rule in `columns`, so that such rows are quarantined",
            )


def python_value(value: Any, spark_type: str) -> object:
    if value is None:
        return None
    match stored_type(spark_type).family:
        case "decimal":
            return Decimal(str(value))
        case "boolean":
            return bool(value)
        case "date" | "timestamp" | "timestamp_ntz" if str(value).startswith(_YEAR_ZERO):
            return value
        case "date":
            return date.fromisoformat(value)
        case "timestamp" | "timestamp_ntz":
            return local_wall_clock(datetime.fromisoformat(value))
        case "float" | "double":
            return float(value)
        case "json":
            return json.loads(value)
        case _:
            return value


def for_arrow(values: Sequence[Any], column: NativeColumn) -> Sequence[object]:
    """Values as Arrow accepts them for the column's type. A table that others fill may hold any value."""
    read = _READERS.get(stored_type(column.spark).family)
    return values if read is None else [None if value is None else read(value) for value in values]


def type_of(kinds: set[str]) -> str:
    """The Spark type of values with these results of `typeof`."""
    match sorted(kinds - {"null"}):
        case ["integer"]:
            return "bigint"
        case ["real"] | ["integer", "real"]:
            return "double"
        case ["blob"]:
            return "binary"
        case _:
            return "string"


def _flag(value: object) -> bool:
    if value not in (0, 1):
        raise ValueError(f"{value!r} is neither 0 nor 1")
    return bool(value)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _date(value: str) -> date | int:
    """Arrow takes days since 1970 too, and the calendar repeats itself every 400 years."""
    if not value.startswith(_YEAR_ZERO):
        return date.fromisoformat(value)
    return (date.fromisoformat("04" + value[2:]) - date(1970, 1, 1)).days - _DAYS_OF_400_YEARS


def _time(value: str) -> datetime | int:
    """Without an offset it is UTC, as in Arrow."""
    if not value.startswith(_YEAR_ZERO):
        return datetime.fromisoformat(value)
    moment = datetime.fromisoformat("04" + value[2:])
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    passed = moment - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(days=_DAYS_OF_400_YEARS)
    return passed // timedelta(microseconds=1)


_READERS: dict[str, Callable[[Any], object]] = {
    "decimal": lambda value: Decimal(str(value)),
    "boolean": _flag,
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _time,
    "float": float,
    "double": float,
    "string": _text,
    JSON_TYPE: _text,
}


def row_digest(row: Row) -> int:
    return int.from_bytes(blake2b(repr(row).encode(), digest_size=16).digest())
