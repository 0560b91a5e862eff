"""SQLite: tables in one file. SQLite has no schemas, so `silver.orders` is a single name.

SQLite stores texts, integers, floats and bytes. Values that these cannot represent without loss are stored as
texts that compare like the values: a decimal with all its digits, a timestamp with microseconds. The declared
type says what they are. NaN, which SQLite would store as NULL, is the text 'NaN'.
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
from tallymark.destinations.sqlite.values import for_arrow, python_value, row_digest, stored, type_of
from tallymark.destinations.warehouse.engine import (
    CatalogEntry,
    NativeColumn,
    Row,
    SqlDialect,
    TableName,
    ascii_lower,
    refuse_bad_path,
    view_entry,
)
from tallymark.destinations.warehouse.transfer import ROWS_AT_ONCE, write_rows
from tallymark.errors import (
    CommitUnknown,
    DestinationError,
    RowsRefused,
    TableBusy,
    TallymarkError,
    Unsupported,
)
from tallymark.model.table import JSON_TYPE
from tallymark.model.types import Primitive, is_nested, stored_type

OLDEST = (3, 35, 0)  # UPDATE … FROM needs 3.33, ALTER TABLE … DROP COLUMN needs 3.35
_DECIMAL_ORDER = "tm_decimal"
_ASCII_ONLY = "SQLite changes the case of ASCII letters only"
_OTHER_NULLS = "SQLite treats NULL differently there"
DIALECT = SqlDialect(
    "sqlite",
    null_safe="IS",
    has_types=False,
    like_ignores_case=True,
    lacks={
        exp.Upper: _ASCII_ONLY,
        exp.Lower: _ASCII_ONLY,
        exp.TimestampTrunc: "SQLite cannot truncate times",
        exp.CurrentTimestamp: "SQLite's form differs from that of the times in its tables",
        exp.Greatest: _OTHER_NULLS,
        exp.Least: _OTHER_NULLS,
    },
)

# Declared types. Those in _TEXT have text affinity: SQLite would otherwise convert the text to a number.
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
_EXACT_IN_A_FLOAT = 15  # decimal digits


@dataclass(frozen=True)
class SqliteEngine:
    path: str
    busy_seconds: float = 30
    durable: bool = True  # a commit survives a power loss
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    dialect: ClassVar[SqlDialect] = DIALECT
    joins_by_index: ClassVar[bool] = True
    longest_name: ClassVar[int] = 10_000

    @property
    def database(self) -> str:
        return self.path

    def qualify(self, table: str) -> TableName:
        return TableName(None, table, ascii_lower(table))

    @contextmanager
    def session(self, *, writes: bool) -> Iterator[SqliteSession]:
        if sqlite3.sqlite_version_info < OLDEST:
            raise Unsupported(f"SQLite {sqlite3.sqlite_version} of this Python is older than 3.35")
        refuse_bad_path(self.path)
        exists = Path(self.path).exists()
        try:
            connection = sqlite3.connect(
                self.path if exists or writes else ":memory:",
                timeout=self.busy_seconds,
                isolation_level=None,  # transactions begin explicitly
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise refusal(error, self.path, self.busy_seconds) from error
        session = SqliteSession(self, connection)
        try:
            connection.create_collation(_DECIMAL_ORDER, _compare_decimals)
            session.execute("PRAGMA temp_store = FILE")  # a large batch need not fit into memory
            if writes and self.durable:
                # Builds of SQLite have other defaults. With a WAL, NORMAL loses the last commits; with a
                # rollback journal, FULL may, since the removal of the journal is not synced.
                session.execute("PRAGMA synchronous = EXTRA")
            yield session
        finally:
            connection.close()  # rolls back what was not committed

    def check(self) -> None:
        with self.session(writes=False) as session:
            session.create_temporary("_tm_check", [NativeColumn("x", "INT", "int")])
            if Path(self.path).exists():
                session.execute("BEGIN IMMEDIATE")
                session.execute("ROLLBACK")
            reason = session.obstacle_to_create(TableName(None, "", ""))
        if reason:
            raise DestinationError(
                f"{self.path}: {reason}", hint="give this user write permission for the file and its folder"
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
            if isinstance(value, exp.Literal):  # SQLite sorts every number before any text
                value = exp.Literal.string(value.name)
            return exp.Collate(this=exp.paren(value), expression=exp.Var(this=_DECIMAL_ORDER))
        return value

    def comparable(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        return value

    def coerced(self, value: str, native: str) -> str:
        return value  # SQLite has no typed NULL, and a cast may change the stored value


@dataclass
class SqliteSession:
    engine: SqliteEngine
    connection: sqlite3.Connection

    @property
    def dialect(self) -> SqlDialect:
        return DIALECT

    def execute(self, sql: str) -> int:
        try:
            return self.connection.execute(sql).rowcount
        except sqlite3.Error as error:
            raise refusal(error, self.engine.path, self.engine.busy_seconds) from error

    def fetch(self, sql: str) -> list[Row]:
        try:
            return self.connection.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise refusal(error, self.engine.path, self.engine.busy_seconds) from error

    def fetch_values(self, sql: str, spark_types: Sequence[str]) -> list[Row]:
        return [
            tuple(python_value(value, kind) for value, kind in zip(row, spark_types, strict=True))
            for row in self.fetch(sql)
        ]

    def fetch_named(self, sql: str) -> tuple[list[str], list[Row]]:
        try:
            cursor = self.connection.execute(sql)
            return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.Error as error:
            raise refusal(error, self.engine.path, self.engine.busy_seconds) from error

    def describe(self, name: TableName) -> CatalogEntry | None:
        found = self.fetch(
            "SELECT type, sql FROM main.sqlite_schema "
            f"WHERE type IN ('table', 'view') AND name = {DIALECT.text(name.table)} COLLATE NOCASE"
        )
        if not found:
            return None
        kind, sql = found[0]
        if kind == "view":
            return view_entry(sql)
        if str(sql).upper().startswith("CREATE VIRTUAL"):
            return CatalogEntry((), obstacle="is a virtual table", is_table=False)
        rows = self.fetch(f"PRAGMA main.table_xinfo({DIALECT.quote(name.table)})")
        columns = tuple(
            NativeColumn(str(row[1]), str(row[2]), self.engine.spark_type(str(row[2])), not row[3])
            for row in rows
            if row[6] == 0  # others are hidden or generated
        )
        return CatalogEntry(columns, obstacle=self.obstacle_to_create(name))

    def view_columns(self, name: TableName) -> tuple[NativeColumn, ...]:
        """Computed columns have no declared type: their values decide."""
        rows = self.fetch(f"PRAGMA main.table_xinfo({DIALECT.quote(name.table)})")
        columns = []
        for column, declared in ((str(row[1]), str(row[2])) for row in rows):
            spark = self.engine.spark_type(declared) if declared else self._type_of_values(name, column)
            columns.append(NativeColumn(column, declared, spark))
        return tuple(columns)

    def _type_of_values(self, name: TableName, column: str) -> str:
        found = self.fetch(f"SELECT DISTINCT typeof({DIALECT.quote(column)}) FROM {DIALECT.table(name)}")
        return type_of({str(kind) for (kind,) in found})

    def replace_view(self, name: TableName, query: str) -> None:
        self.execute(f"DROP VIEW IF EXISTS {DIALECT.table(name)}")
        self.execute(f"CREATE VIEW {DIALECT.table(name)} AS {query}")

    def obstacle_to_create(self, name: TableName) -> str:
        path = Path(self.engine.path)
        if path.exists() and not os.access(path, os.W_OK):
            return "the database file is read-only for this user"
        if not os.access(path.parent, os.W_OK):
            return f"this user may not write to the folder {path.parent}"  # for SQLite's journal
        return ""

    def create_temporary(self, name: str, columns: Sequence[NativeColumn]) -> None:
        defined = ", ".join(f"{DIALECT.quote(c.name)} {c.native}" for c in columns)
        self.execute(f"CREATE TEMP TABLE {DIALECT.quote(name)} ({defined})")

    def create_temporary_as(self, name: str, columns: Sequence[NativeColumn], query: str) -> None:
        """In two steps: CREATE TABLE … AS would lose the declared types."""
        self.create_temporary(name, columns)
        names = DIALECT.quote_list([c.name for c in columns])
        self.execute(f"INSERT INTO temp.{DIALECT.quote(name)} ({names}) SELECT {names} FROM ({query}) AS q")

    def fill(self, name: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]) -> None:
        marks = ", ".join("?" for _ in columns)
        self.execute("BEGIN")  # writes a temporary table only: does not lock the database
        for table in tables:
            values = [stored(a.combine_chunks(), c) for a, c in zip(table.columns, columns, strict=True)]
            try:
                rows = zip(*values, strict=True)
                self.connection.executemany(f"INSERT INTO temp.{DIALECT.quote(name)} VALUES ({marks})", rows)
            except sqlite3.Error as error:
                raise refusal(error, self.engine.path, self.engine.busy_seconds) from error
        self.execute("COMMIT")

    def begin(self, name: TableName, *, exists: bool, lock: bool) -> None:
        self.execute("BEGIN IMMEDIATE" if lock else "BEGIN")

    def lock_markers(self, name: TableName) -> None:
        """Does nothing: `begin` locks the whole database."""

    def change_type(self, name: TableName, column: NativeColumn) -> None:
        """SQLite cannot change a type, so the empty table is created again, with its other columns,
        indexes and triggers."""
        entry = self.describe(name) or CatalogEntry(())
        kept = self.fetch(
            "SELECT sql FROM main.sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL "
            f"AND tbl_name = {DIALECT.text(name.table)} COLLATE NOCASE"
        )
        columns = [column if c.name.casefold() == column.name.casefold() else c for c in entry.columns]
        defined = ", ".join(
            f"{DIALECT.quote(c.name)} {c.native}{'' if c.nullable else ' NOT NULL'}" for c in columns
        )
        self.execute(f"DROP TABLE {DIALECT.table(name)}")
        self.execute(f"CREATE TABLE {DIALECT.table(name)} ({defined})")
        for (sql,) in kept:
            self.execute(str(sql))

    def begin_read(self, name: TableName) -> None:
        self.execute("BEGIN")

    def fingerprint(self, name: TableName, columns: Sequence[NativeColumn]) -> str:
        """A sum: independent of the order of rows."""
        total = sum(row_digest(row) for rows in self._parts(name, columns) for row in rows)
        return f"{total:x}"

    def export(self, name: TableName, columns: Sequence[NativeColumn], file: Path) -> None:
        write_rows(file, columns, self._parts(name, columns), for_arrow)

    def _parts(self, name: TableName, columns: Sequence[NativeColumn]) -> Iterator[list[Row]]:
        try:
            cursor = self.connection.execute(
                f"SELECT {DIALECT.quote_list([c.name for c in columns])} FROM {DIALECT.table(name)}"
            )
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield rows
        except sqlite3.Error as error:
            raise refusal(error, self.engine.path, self.engine.busy_seconds) from error

    def commit(self) -> None:
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self.connection.in_transaction:  # it can still be rolled back, so nothing was committed
                raise refusal(error, self.engine.path, self.engine.busy_seconds) from error
            raise CommitUnknown(
                f"{self.engine.path}: the commit was not confirmed ({error})",
                hint="run again: the marker shows whether it was committed",
            ) from error


def _compare_decimals(left: str, right: str) -> int:
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)


_MEANINGS = (
    (
        "SQLITE_NOTADB",
        "is not a SQLite database",
        "set `path` to a SQLite file, or to a file that does not exist yet",
    ),
    ("SQLITE_CORRUPT", "is damaged", "restore it from a backup"),
    (
        "SQLITE_CANTOPEN",
        "cannot be opened",
        "check that its folder exists and that this user may write to it",
    ),
    ("SQLITE_READONLY", "is read-only", "give this user write permission for the file and its folder"),
    ("SQLITE_FULL", "cannot grow: the disk is full", "free some space on its disk, then run again"),
    ("SQLITE_IOERR", "cannot be read or written", "check its disk, then run again"),
)


def refusal(error: sqlite3.Error | OverflowError, path: str, busy_seconds: float) -> TallymarkError:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TableBusy(
            f"{path}: another process has been writing to this database "
            f"for more than {busy_seconds:g} seconds",
            hint="run again when it has finished",
        )
    if code.startswith("SQLITE_CONSTRAINT"):
        return RowsRefused.by_constraint(path, error)
    for start, meaning, hint in _MEANINGS:
        if code.startswith(start):
            return DestinationError(f"{path}: {meaning} ({error})", hint=hint)
    return DestinationError(f"{path}: SQLite reports: {error}")
