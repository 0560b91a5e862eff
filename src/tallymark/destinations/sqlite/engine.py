"""SQLite: a file with the tables, whose names have no schemas, so that `silver.orders` is one name.

SQLite keeps texts, integers, floats and bytes. What these cannot hold without loss is a text that sorts and
compares as the value does: a decimal with all its digits, a timestamp with six digits of a second. The
declared type says what it is. NaN, which SQLite would turn into NULL, is the text 'NaN'.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from sqlglot import exp

from tallymark.destinations.declaration import Capabilities
from tallymark.destinations.sqlite import CAPABILITIES
from tallymark.destinations.sqlite.errors import refusal
from tallymark.destinations.sqlite.values import for_arrow, python_value, row_digest, stored, type_of
from tallymark.destinations.warehouse.arrow import ROWS_AT_ONCE, write_rows
from tallymark.destinations.warehouse.engine import (
    Name,
    NativeColumn,
    Relation,
    Row,
    a_view,
    literal,
    quoted,
    quoted_list,
    refuse_no_place,
    without_case,
)
from tallymark.errors import DestinationError, Unsupported
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import Primitive, is_nested, stored_type

OLDEST = (3, 35, 0)  # UPDATE … FROM and RETURNING came before, ALTER TABLE … DROP COLUMN with it
_DECIMAL_ORDER = "tm_decimal"

# The type as we write it. Ours end in _TEXT where SQLite would otherwise turn the text into a number.
_NATIVE = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "FLOAT4",
    "double": "DOUBLE",
    "string": "TEXT",
    "void": "TEXT",
    "binary": "BLOB",
    "date": "DATE_TEXT",
    "timestamp": "TIMESTAMP_TZ_TEXT",
    "timestamp_ntz": "TIMESTAMP_TEXT",
    JSON_TYPE: "JSON_TEXT",
}
_SPARK = {native: spark for spark, native in _NATIVE.items() if spark != "void"} | {
    "INTEGER": "bigint",
    "INT8": "bigint",
    "BOOL": "boolean",
    "REAL": "double",
    "FLOAT": "double",
    "DOUBLE PRECISION": "double",
    "NUMERIC": "double",
    "DATE": "date",
    "DATETIME": "timestamp_ntz",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMPTZ": "timestamp",
    "JSON": JSON_TYPE,
}
_EXACT_IN_A_FLOAT = 15  # digits


@dataclass(frozen=True)
class SqliteEngine:
    path: str
    busy_seconds: float = 30
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    dialect: ClassVar[str] = "sqlite"
    null_safe: ClassVar[str] = "IS"
    joins_by_index: ClassVar[bool] = True
    longest_name: ClassVar[int] = 10_000

    @property
    def place(self) -> str:
        return self.path

    def locate(self, table: str) -> Name:
        return Name(None, table, without_case(table))

    @contextmanager
    def session(self, *, writes: bool) -> Iterator[SqliteSession]:
        if sqlite3.sqlite_version_info < OLDEST:
            raise Unsupported(f"Python's SQLite is {sqlite3.sqlite_version}, older than 3.35")
        refuse_no_place(self.path)
        exists = Path(self.path).exists()
        try:
            connection = sqlite3.connect(
                self.path if exists or writes else ":memory:",
                timeout=self.busy_seconds,
                isolation_level=None,  # transactions begin where we say so
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise refusal(error, self) from error
        session = SqliteSession(self, connection)
        try:
            connection.create_collation(_DECIMAL_ORDER, _compare_decimals)
            session.execute("PRAGMA temp_store = FILE")  # a large batch must not have to fit into memory
            yield session
        finally:
            connection.close()  # what was not committed is gone

    def check(self) -> None:
        with self.session(writes=False) as session:
            session.temporary("_tm_check", [NativeColumn("x", "INT", "int")])
            if Path(self.path).exists():
                session.execute("BEGIN IMMEDIATE")
                session.execute("ROLLBACK")
            reason = session.obstacle_to_create(Name(None, "", ""))
        if reason:
            raise DestinationError(
                f"{self.path}: {reason}", hint="let this user write the file and its folder"
            )

    def native_type(self, spark_type: str) -> str:
        match stored_type(spark_type):
            case Primitive(name="decimal", sizes=(precision, scale)):
                return f"DECIMAL_TEXT({precision},{scale})"
            case nested if is_nested(nested):
                return _NATIVE[JSON_TYPE]
            case flat if flat.family in _NATIVE:
                return _NATIVE[flat.family]
            case _:
                raise Unsupported(f"SQLite has no type for {spark_type}", hint="cast the column in `columns`")

    def spark_type(self, native: str) -> str:
        declared = " ".join(native.upper().split())
        found = re.fullmatch(r"(DECIMAL_TEXT|DECIMAL|NUMERIC) ?\( ?(\d+)(?: ?, ?(\d+))? ?\)", declared)
        if found:
            digits, scale = int(found[2]), int(found[3] or 0)
            exact = found[1] == "DECIMAL_TEXT" or digits <= _EXACT_IN_A_FLOAT
            return f"decimal({digits},{scale})" if exact else "double"
        return _SPARK.get(declared, "double" if declared == "DECIMAL" else "string")

    def moment(self, at: datetime) -> exp.Expr:
        return exp.Literal.string(at.astimezone(UTC).isoformat(" ", "microseconds"))

    def ordered(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        if spark_type.startswith("decimal"):
            if isinstance(value, exp.Literal):  # a number would be compared as a number, before any text
                value = exp.Literal.string(value.name)
            return exp.Collate(this=exp.paren(value), expression=exp.Var(this=_DECIMAL_ORDER))
        return value

    def comparable(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        return value

    def coerced(self, value: str, native: str) -> str:
        return value  # SQLite has no typed NULL, and a cast would change what is stored


@dataclass
class SqliteSession:
    engine: SqliteEngine
    connection: sqlite3.Connection

    def execute(self, sql: str) -> int:
        try:
            return self.connection.execute(sql).rowcount
        except sqlite3.Error as error:
            raise refusal(error, self.engine) from error

    def fetch(self, sql: str) -> list[Row]:
        try:
            return self.connection.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise refusal(error, self.engine) from error

    def values(self, sql: str, spark_types: Sequence[str]) -> list[Row]:
        return [
            tuple(python_value(value, kind) for value, kind in zip(row, spark_types, strict=True))
            for row in self.fetch(sql)
        ]

    def named(self, sql: str) -> tuple[list[str], list[Row]]:
        try:
            cursor = self.connection.execute(sql)
            return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.Error as error:
            raise refusal(error, self.engine) from error

    def relation(self, name: Name) -> Relation | None:
        found = self.fetch(
            "SELECT type, sql FROM main.sqlite_schema "
            f"WHERE type IN ('table', 'view') AND name = {literal(name.table)} COLLATE NOCASE"
        )
        if not found:
            return None
        kind, sql = found[0]
        if kind == "view":
            return a_view(sql)
        if str(sql).upper().startswith("CREATE VIRTUAL"):
            return Relation((), obstacle="is a virtual table", is_table=False)
        rows = self.fetch(f"PRAGMA main.table_xinfo({quoted(name.table)})")
        columns = tuple(
            NativeColumn(str(row[1]), str(row[2]), self.engine.spark_type(str(row[2])), not row[3])
            for row in rows
            if row[6] == 0  # others are computed by SQLite
        )
        return Relation(columns, obstacle=self.obstacle_to_create(name))

    def view_columns(self, name: Name) -> tuple[NativeColumn, ...]:
        """What a view computes has no declared type: its values tell."""
        rows = self.fetch(f"PRAGMA main.table_xinfo({quoted(name.table)})")
        columns = []
        for column, declared in ((str(row[1]), str(row[2])) for row in rows):
            kinds = (
                [] if declared else self.fetch(f"SELECT DISTINCT typeof({quoted(column)}) FROM {name.sql}")
            )
            spark = (
                self.engine.spark_type(declared) if declared else type_of({str(kind) for (kind,) in kinds})
            )
            columns.append(NativeColumn(column, declared, spark))
        return tuple(columns)

    def replace_view(self, name: Name, query: str) -> None:
        self.execute(f"DROP VIEW IF EXISTS {name.sql}")
        self.execute(f"CREATE VIEW {name.sql} AS {query}")

    def obstacle_to_create(self, name: Name) -> str:
        path = Path(self.engine.path)
        if path.exists() and not os.access(path, os.W_OK):
            return "the database file is read-only for this user"
        if not os.access(path.parent, os.W_OK):
            return f"this user may not write the folder {path.parent}"  # SQLite's journal is made there
        return ""

    def temporary(self, name: str, columns: Sequence[NativeColumn]) -> None:
        defined = ", ".join(f"{quoted(c.name)} {c.native}" for c in columns)
        self.execute(f"CREATE TEMP TABLE {quoted(name)} ({defined})")

    def temporary_of(self, name: str, columns: Sequence[NativeColumn], query: str) -> None:
        """In two steps: a table made of a query would not have the declared types."""
        self.temporary(name, columns)
        names = quoted_list([c.name for c in columns])
        self.execute(f"INSERT INTO temp.{quoted(name)} ({names}) SELECT {names} FROM ({query}) AS q")

    def fill(self, name: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]) -> None:
        marks = ", ".join("?" for _ in columns)
        self.execute("BEGIN")  # of a temporary table: the database itself is not locked
        for table in tables:
            texts = [stored(a.combine_chunks(), c) for a, c in zip(table.columns, columns, strict=True)]
            try:
                rows = zip(*texts, strict=True)
                self.connection.executemany(f"INSERT INTO temp.{quoted(name)} VALUES ({marks})", rows)
            except sqlite3.Error as error:
                raise refusal(error, self.engine) from error
        self.execute("COMMIT")

    def begin(self, name: Name, *, exists: bool, lock: bool) -> None:
        self.execute("BEGIN IMMEDIATE" if lock else "BEGIN")

    def hold_markers(self, name: Name) -> None:
        """The whole database is locked already."""

    def change_type(self, name: Name, column: NativeColumn) -> None:
        """SQLite cannot, so the empty table is made anew, with its other columns and indexes as they were."""
        relation = self.relation(name) or Relation(())
        kept = self.fetch(
            "SELECT sql FROM main.sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL "
            f"AND tbl_name = {literal(name.table)} COLLATE NOCASE"
        )
        columns = [column if c.name.casefold() == column.name.casefold() else c for c in relation.columns]
        defined = ", ".join(
            f"{quoted(c.name)} {c.native}{'' if c.nullable else ' NOT NULL'}" for c in columns
        )
        self.execute(f"DROP TABLE {name.sql}")
        self.execute(f"CREATE TABLE {name.sql} ({defined})")
        for (sql,) in kept:
            self.execute(str(sql))

    def freeze(self, name: Name) -> None:
        self.execute("BEGIN")

    def fingerprint(self, name: Name, columns: Sequence[NativeColumn]) -> str:
        """A sum, since rows have no order."""
        total = sum(row_digest(row) for rows in self._parts(name, columns) for row in rows)
        return f"{total:x}"

    def export(self, name: Name, columns: Sequence[NativeColumn], file: Path) -> None:
        write_rows(file, columns, self._parts(name, columns), for_arrow)

    def _parts(self, name: Name, columns: Sequence[NativeColumn]) -> Iterator[list[Row]]:
        try:
            cursor = self.connection.execute(
                f"SELECT {quoted_list([c.name for c in columns])} FROM {name.sql}"
            )
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield rows
        except sqlite3.Error as error:
            raise refusal(error, self.engine) from error

    def commit(self) -> None:
        self.execute("COMMIT")


def _compare_decimals(left: str, right: str) -> int:
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)
