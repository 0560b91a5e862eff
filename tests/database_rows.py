"""Reads tables of databases through their drivers alone, with values as Spark returns them to Python."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa

from oracle import Row


def sqlite_rows(path: Path, table: str) -> list[Row]:
    connection = sqlite3.connect(path)
    declared = {row[1]: row[2] for row in connection.execute(f'PRAGMA table_info("{table}")')}
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    rows = [
        {name: _from_sqlite(value, declared[name]) for name, value in zip(names, row, strict=True)}
        for row in cursor
    ]
    connection.close()
    return rows


def _from_sqlite(value: Any, declared: str) -> Any:
    readers: dict[str, Callable[[Any], Any]] = {
        "DECIMAL_TEXT": Decimal,
        "TIMESTAMP_TZ_TEXT": lambda text: _naive(datetime.fromisoformat(text)),
        "TIMESTAMP_TEXT": datetime.fromisoformat,
        "DATE_TEXT": date.fromisoformat,
        "BOOLEAN": bool,
        "JSON_TEXT": json.loads,
        "DOUBLE": float,
        "FLOAT4": float,
    }
    reader = readers.get(declared.partition("(")[0])
    return value if value is None or reader is None else reader(value)


def duckdb_rows(path: Path, table: str) -> list[Row]:
    with duckdb.connect(str(path)) as connection:
        found = connection.sql(f"SELECT * FROM {_quoted(table)}").to_arrow_table()
    columns = [[_from_arrow(v.as_py(), column.type) for v in column] for column in found.columns]
    return [dict(zip(found.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _from_arrow(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _from_arrow(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_from_arrow(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _from_arrow(value[field.name], field.type) for field in kind}
    return _naive(value) if isinstance(value, datetime) else value


def postgres_rows(url: str, table: str) -> list[Row]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        found = connection.execute(f"SELECT * FROM {_quoted(table)}").fetchall()
    return [
        {name: _naive(value) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in found
    ]


def _quoted(table: str) -> str:
    return ".".join(f'"{part}"' for part in table.split("."))


def _naive(value: datetime) -> datetime:
    """In local time without an offset, as Spark returns it."""
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)
