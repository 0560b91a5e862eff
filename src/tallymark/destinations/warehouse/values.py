"""Values between Arrow and databases that take texts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WRITTEN_OUT = 6  # decimals with more digits after the point may be written with an exponent by Arrow


def decimal_texts(array: pa.Array) -> list[str | None]:
    """With all digits of the scale, so that equal numbers are equal texts."""
    if array.type.scale <= _WRITTEN_OUT:
        texts: list[str | None] = array.cast(pa.string()).to_pylist()
        return texts
    return [None if value is None else format(value, "f") for value in array.to_pylist()]


def date_texts(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts


def timestamp_texts(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = timestamp_array(array).to_pylist()
    return texts


def timestamp_array(array: pa.Array) -> Any:
    """ISO texts with six digits of a second; of a timestamp with zone, in UTC and with the offset."""
    if array.type.tz is None:
        return array.cast(pa.timestamp("us")).cast(pa.string())
    in_utc = array.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(in_utc, "+00:00", "")


def as_spark_gives(value: datetime) -> datetime:
    """Spark gives Python the wall clock of this machine's zone, without a zone."""
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)


def plain(value: Any) -> Any:
    """The same of whatever a driver gives; maps of Arrow are lists of pairs."""
    match value:
        case datetime():
            return as_spark_gives(value)
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case [(_, _), *_] if all(isinstance(pair, tuple) for pair in value):
            return {key: plain(item) for key, item in value}
        case list():
            return [plain(item) for item in value]
        case memoryview():
            return bytes(value)
        case _:
            return value
