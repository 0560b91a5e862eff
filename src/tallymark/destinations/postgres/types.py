"""Types between Spark and PostgreSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tallymark.destinations.warehouse.engine import Row, SqlDialect
from tallymark.errors import Unsupported
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import Primitive, is_nested, stored_type

if TYPE_CHECKING:
    import psycopg

DIALECT = SqlDialect("postgres")

_NATIVE = {
    "boolean": "boolean",
    "tinyint": "smallint",  # PostgreSQL has no smaller type
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "void": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    JSON_TYPE: "jsonb",
}
_SPARK = {native: spark for spark, native in _NATIVE.items() if spark not in ("void", "tinyint")} | {
    "json": JSON_TYPE,
    "numeric": "decimal(38,18)",  # of any size: values that do not fit are refused
}


def read_far_times_as_text(connection: psycopg.Connection[Row]) -> None:
    """Python has no dates before the year 1 and after 9999, and none for infinity: the driver would refuse
    the whole answer."""
    from psycopg import DataError
    from psycopg.types import datetime as of_driver

    loaders = {
        "date": of_driver.DateLoader,
        "timestamp": of_driver.TimestampLoader,
        "timestamptz": of_driver.TimestamptzLoader,
    }
    for name, loader in loaders.items():

        class OrText(loader):  # type: ignore[misc, valid-type]  # made for each
            def load(self, data: bytes | bytearray | memoryview) -> object:
                try:
                    return super().load(data)
                except (DataError, OverflowError):
                    return bytes(data).decode()

        connection.adapters.register_loader(name, OrText)


def native_type(spark_type: str) -> str:
    match stored_type(spark_type):
        case Primitive(name="decimal", sizes=(precision, scale)):
            return f"numeric({precision},{scale})"
        case nested if is_nested(nested):
            return _NATIVE[JSON_TYPE]
        case flat if flat.family in _NATIVE:
            return _NATIVE[flat.family]
        case _:
            raise Unsupported(f"PostgreSQL has no type for {spark_type}", hint="cast the column in `columns`")


def spark_type(native: str) -> str:
    if found := re.fullmatch(r"numeric\((\d+),(\d+)\)", native):
        return f"decimal({found[1]},{found[2]})" if int(found[1]) <= 38 else "string"
    without_size = re.sub(r"^(timestamp)\(\d\)", r"\1", native)
    return _SPARK.get(without_size, "string")
