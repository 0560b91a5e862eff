"""PostgreSQL 14 or newer, through psycopg 3. A load is one transaction; its rows arrive by COPY."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa
from sqlglot import exp

from tallymark.destinations.declaration import Capabilities
from tallymark.destinations.postgres import CAPABILITIES, DRIVER
from tallymark.destinations.postgres.copy import copy_rows, exported
from tallymark.destinations.postgres.errors import copy_refusal, refusal
from tallymark.destinations.postgres.types import DIALECT, native_type, read_far_times_as_text, spark_type
from tallymark.destinations.postgres.views import oid_of, replace_view, schema_of
from tallymark.destinations.warehouse.engine import (
    CatalogEntry,
    NativeColumn,
    Row,
    RowAddress,
    SqlDialect,
    TableName,
    coerced_values,
    view_entry,
)
from tallymark.destinations.warehouse.transfer import ROWS_AT_ONCE, spark_value, write_rows
from tallymark.errors import CommitUnknown, Unsupported
from tallymark.model.section import redact
from tallymark.model.table import JSON_TYPE

if TYPE_CHECKING:
    import psycopg

    from tallymark.destinations.warehouse.engine import Row


_KINDS = {
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
}
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
_AVOIDED = ("enable_hashjoin", "enable_mergejoin", "enable_memoize")
_CTID = RowAddress(
    "ctid",
    "tid",
    prefer="; ".join(f"SET LOCAL {setting} = off" for setting in _AVOIDED),
    afterwards="; ".join(f"RESET {setting}" for setting in _AVOIDED),
)


@dataclass(frozen=True)
class PostgresEngine:
    url: str = field(repr=False)
    busy_seconds: float = 30
    durable: bool = True  # a commit survives a crash of the server
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    dialect: ClassVar[SqlDialect] = DIALECT
    joins_by_index: ClassVar[bool] = False
    longest_name: ClassVar[int] = 63

    @property
    def database(self) -> str:
        """Host and database, so that two users of one database share leases."""
        parts = urlsplit(re.sub(r"^postgres(ql)?(\+psycopg)?:", "postgresql:", self.url))
        options = dict(pair.partition("=")[::2] for pair in parts.query.split("&"))
        host = parts.netloc.rpartition("@")[2] or options.get("host", "localhost")
        inside = f"?{options['options']}" if "options" in options else ""  # may set the search_path
        return redact(f"postgresql://{host}{parts.path}{inside}")

    def qualify(self, table: str) -> TableName:
        schema, _, name = table.rpartition(".")
        if "." in schema:
            raise Unsupported(
                f"table {table}: a connection cannot reach other databases", hint="use schema.table"
            )
        return TableName(schema or None, name, name)

    @contextmanager
    def session(self, *, writes: bool) -> Iterator[PostgresSession]:
        connection = self._connect()
        try:
            set_up(connection, self.busy_seconds, writes=writes, durable=self.durable)
            yield PostgresSession(self, connection)
        finally:
            with suppress(Exception):  # the server rolls back, however the connection ends
                connection.close()

    def _connect(self) -> psycopg.Connection[Row]:
        try:
            import psycopg
        except ModuleNotFoundError as error:
            raise DRIVER.missing() from error
        try:
            connection = psycopg.connect(
                re.sub(r"^postgresql\+psycopg:", "postgresql:", self.url), connect_timeout=15
            )
        except psycopg.Error as error:
            raise refusal(
                error, self.database, self.busy_seconds
            ) from None  # the cause may contain the password
        read_far_times_as_text(connection)
        return connection

    def check(self) -> None:
        with self.session(writes=False) as session:
            session.create_temporary("_tm_check", [NativeColumn("x", "integer", "int")])

    def native_type(self, spark_type: str) -> str:
        return native_type(spark_type)

    def spark_type(self, native: str) -> str:
        return spark_type(native)

    def moment(self, at: datetime) -> exp.Expr:
        text = exp.Literal.string(at.astimezone(UTC).isoformat(" ", "microseconds"))
        return exp.cast(text, exp.DataType.build("TIMESTAMPTZ", dialect="postgres"))

    def ordered(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        if spark_type == "string":  # by bytes, as in Spark; cast to text, since a uuid has no collation
            return exp.Collate(
                this=exp.cast(value, "text", dialect="postgres"),
                expression=exp.to_identifier("C", quoted=True),
            )
        return value

    def comparable(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        if spark_type == JSON_TYPE:  # the type json has no equality operator
            return exp.cast(value, "jsonb", dialect="postgres")
        return value

    def coerced(self, value: str, native: str) -> str:
        return f"CAST({value} AS {native})"


@dataclass(frozen=True)
class PostgresSession:
    engine: PostgresEngine
    connection: psycopg.Connection[Row]

    @property
    def dialect(self) -> SqlDialect:
        return DIALECT

    def execute(self, sql: str) -> int:
        import psycopg

        try:
            return self.connection.execute(sql.encode()).rowcount
        except psycopg.Error as error:
            raise refusal(error, self.engine.database, self.engine.busy_seconds) from error

    def fetch(self, sql: str) -> list[Row]:
        import psycopg

        try:
            return self.connection.execute(sql.encode()).fetchall()
        except psycopg.Error as error:
            raise refusal(error, self.engine.database, self.engine.busy_seconds) from error

    def fetch_values(self, sql: str, spark_types: Sequence[str]) -> list[Row]:
        return [tuple(spark_value(value) for value in row) for row in self.fetch(sql)]

    def fetch_named(self, sql: str) -> tuple[list[str], list[Row]]:
        import psycopg

        try:
            cursor = self.connection.execute(sql.encode())
            names = [column.name for column in cursor.description or ()]
            return names, [tuple(spark_value(value) for value in row) for row in cursor.fetchall()]
        except psycopg.Error as error:
            raise refusal(error, self.engine.database, self.engine.busy_seconds) from error

    def describe(self, name: TableName) -> CatalogEntry | None:
        found = self.fetch(
            "SELECT c.oid, c.relkind::text, row_security_active(c.oid), "
            # In other tables, rows of several partitions may have the same ctid.
            "c.relkind = 'r' AND NOT c.relhassubclass AND a.amname = 'heap', "
            + ", ".join(f"has_table_privilege(c.oid, '{privilege}')" for privilege in _PRIVILEGES)
            + ", has_schema_privilege(n.oid, 'CREATE, USAGE') "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_catalog.pg_am a ON a.oid = c.relam "
            f"WHERE n.nspname = {schema_of(name)} AND c.relname = {DIALECT.text(name.table)}"
        )
        if not found:
            return None
        oid, kind, hides_rows, is_one_heap, *granted = found[0]
        if kind == "v":
            return view_entry(self.fetch(f"SELECT pg_get_viewdef({oid})")[0][0], f"{oid} ")
        if kind not in ("r", "p"):
            obstacle = f"is {_KINDS.get(str(kind), 'not a table')}"
            return CatalogEntry((), str(oid), obstacle=obstacle, is_table=False)
        obstacle = _obstacle(bool(hides_rows), granted[:-1])
        address = _CTID if is_one_heap else None
        return CatalogEntry(self._columns(str(oid)), str(oid), obstacle, address=address)

    def _columns(self, oid: str) -> tuple[NativeColumn, ...]:
        rows = self.fetch(
            "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_catalog.pg_attribute "
            f"WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' AND attidentity <> 'a' ORDER BY attnum"  # the server fills the others
        )
        return tuple(
            NativeColumn(str(column), str(native), self.engine.spark_type(str(native)), bool(nullable))
            for column, native, nullable in rows
        )

    def view_columns(self, name: TableName) -> tuple[NativeColumn, ...]:
        return self._columns(oid_of(self, name) or "NULL")

    def replace_view(self, name: TableName, query: str) -> None:
        replace_view(self, name, query)

    def obstacle_to_create(self, name: TableName) -> str:
        rows = self.fetch(
            "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace "
            f"WHERE nspname = {schema_of(name)}"
        )
        if rows:
            return (
                "" if rows[0][0] else f"this user may not create tables in schema {name.schema or 'public'}"
            )
        if name.schema is None:
            return "no schema in the search_path exists"
        may = self.fetch("SELECT has_database_privilege(current_database(), 'CREATE')")[0][0]
        return "" if may else f"there is no schema {name.schema}, and this user may not create it"

    def create_temporary(self, name: str, columns: Sequence[NativeColumn]) -> None:
        defined = ", ".join(f"{DIALECT.quote(c.name)} {c.native}" for c in columns)
        self.execute(f"CREATE TEMP TABLE {DIALECT.quote(name)} ({defined}) ON COMMIT DROP")

    def create_temporary_as(self, name: str, columns: Sequence[NativeColumn], query: str) -> None:
        values = coerced_values(self.engine, columns, "q")
        self.execute(
            f"CREATE TEMP TABLE {DIALECT.quote(name)} ON COMMIT DROP AS SELECT {values} FROM ({query}) AS q"
        )
        self.execute(f"ANALYZE {DIALECT.quote(name)}")

    def fill(self, name: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]) -> None:
        import psycopg

        copied = f"COPY {DIALECT.quote(name)} ({DIALECT.quote_list([c.name for c in columns])}) FROM STDIN"
        try:
            copy_rows(self.connection, copied, columns, tables)
        except psycopg.Error as error:
            raise copy_refusal(error, self.engine.database, self.engine.busy_seconds) from error
        self.execute(f"ANALYZE {DIALECT.quote(name)}")

    def begin(self, name: TableName, *, exists: bool, lock: bool) -> None:
        """With the lock, READ COMMITTED sees the latest state. A plan that is only shown takes no lock: its
        queries may see different states if a load commits between them."""
        if lock and exists:
            self.execute(f"LOCK TABLE {DIALECT.table(name)} IN SHARE ROW EXCLUSIVE MODE")
        elif lock:
            self._lock_name(f"table {name.schema} {name.table}")

    def lock_markers(self, name: TableName) -> None:
        if self.describe(name.beside("_tallymark_fence")) is None:
            self._lock_name(f"markers {name.schema}")

    def _lock_name(self, what: str) -> None:
        """A table that does not exist yet cannot be locked, but its name can."""
        number = int.from_bytes(sha256(f"tallymark {what}".encode()).digest()[:8], signed=True)
        self.execute(f"SELECT pg_advisory_xact_lock({number})")

    def change_type(self, name: TableName, column: NativeColumn) -> None:
        self.execute(
            f"ALTER TABLE {DIALECT.table(name)} ALTER COLUMN {DIALECT.quote(column.name)} "
            f"TYPE {column.native} USING NULL::{column.native}"
        )

    def begin_read(self, name: TableName) -> None:
        """Locks before the first query takes the snapshot: after a TRUNCATE or ALTER TABLE in between, the
        table would look empty. The lock blocks nothing else."""
        import psycopg

        self.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            self.connection.execute(f"LOCK TABLE {DIALECT.table(name)} IN ACCESS SHARE MODE".encode())
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            self.connection.rollback()  # the table does not exist: nothing to read
        except psycopg.Error as error:
            raise refusal(error, self.engine.database, self.engine.busy_seconds) from error

    def fingerprint(self, name: TableName, columns: Sequence[NativeColumn]) -> str:
        """A sum: independent of the order of rows."""
        row = f"ROW({DIALECT.quote_list([column.name for column in columns])})::text"
        return str(
            self.fetch(
                f"SELECT COUNT(*), SUM(hashtextextended({row}, 0)::numeric) FROM {DIALECT.table(name)}"
            )[0]
        )

    def export(self, name: TableName, columns: Sequence[NativeColumn], file: Path) -> None:
        write_rows(file, columns, self._parts(name, columns))

    def _parts(self, name: TableName, columns: Sequence[NativeColumn]) -> Iterator[list[Row]]:
        """With a server-side cursor: otherwise the driver would fetch the whole table at once."""
        import psycopg

        values = ", ".join(exported(column) for column in columns)
        try:
            with self.connection.cursor("tallymark_rows", binary=True) as cursor:
                cursor.execute(f"SELECT {values} FROM {DIALECT.table(name)}".encode())
                while rows := cursor.fetchmany(ROWS_AT_ONCE):
                    yield rows
        except psycopg.Error as error:
            raise refusal(error, self.engine.database, self.engine.busy_seconds) from error

    def commit(self) -> None:
        import psycopg

        try:
            self.connection.commit()
        except psycopg.Error as error:
            if error.sqlstate is None or self.connection.broken or self.connection.closed:
                raise CommitUnknown(
                    f"{self.engine.database}: the connection was lost during the commit",
                    hint="run again: the marker shows whether it was committed",
                ) from error
            # The server has answered that it did not commit.
            raise refusal(error, self.engine.database, self.engine.busy_seconds) from error


def _obstacle(hides_rows: bool, granted: Sequence[object]) -> str:
    missing = [privilege for privilege, may in zip(_PRIVILEGES, granted, strict=True) if not may]
    if missing:
        return f"this user lacks the permission for {', '.join(missing)}"
    return "row-level security hides some of its rows from this user" if hides_rows else ""


# With PostgreSQL's own 4 MB, the sort and the hash table of half a million rows are on disk.
_MEMORY = {"work_mem": "128MB", "temp_buffers": "64MB"}


def set_up(
    connection: psycopg.Connection[Row], busy_seconds: float, *, writes: bool, durable: bool = True
) -> None:
    connection.execute(f"SET LOCAL lock_timeout = {int(busy_seconds * 1000)}")
    connection.execute("SET LOCAL TimeZone = 'UTC'")
    connection.execute("SET LOCAL standard_conforming_strings = on")
    # Ours is the only ANALYZE in it, of a batch that is joined by its keys: a tenth of the usual sample tells
    # its size and whether values repeat.
    connection.execute("SET LOCAL default_statistics_target = 10")
    if writes and durable:
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
    if writes:
        for setting, wanted in _MEMORY.items():  # a server that gives more is left alone
            connection.execute(
                f"SELECT set_config('{setting}', '{wanted}', true) "
                f"WHERE pg_size_bytes(current_setting('{setting}')) < pg_size_bytes('{wanted}')"
            )
