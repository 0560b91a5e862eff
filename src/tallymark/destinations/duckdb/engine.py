"""DuckDB: schemas and tables in one file, with native types for everything, nested values included.

Only one process at a time can open the file for writing, so it is opened for each operation and closed after
it. Within a process, transactions are optimistic: two loads into one table conflict in its row of the fence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from sqlglot import exp

from tallymark.destinations.declaration import Capabilities
from tallymark.destinations.duckdb import CAPABILITIES, DRIVER
from tallymark.destinations.duckdb.types import DIALECT, exported_type, native_type, spark_type
from tallymark.destinations.durable import sync_folder
from tallymark.destinations.warehouse.engine import (
    CatalogEntry,
    NativeColumn,
    Row,
    SqlDialect,
    TableName,
    ascii_lower,
    coerced_values,
    refuse_bad_path,
    view_entry,
)
from tallymark.destinations.warehouse.transfer import arrow_values, spark_value
from tallymark.errors import (
    CommitUnknown,
    DestinationError,
    RowsRefused,
    TableBusy,
    TableMoved,
    TallymarkError,
    Unsupported,
)

if TYPE_CHECKING:
    import duckdb

_STAGING = "_tm_arrow"


@dataclass(frozen=True)
class DuckDbEngine:
    path: str
    busy_seconds: float = 30
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    dialect: ClassVar[SqlDialect] = DIALECT
    joins_by_index: ClassVar[bool] = False
    longest_name: ClassVar[int] = 10_000

    @property
    def database(self) -> str:
        return self.path

    def qualify(self, table: str) -> TableName:
        schema, _, name = table.rpartition(".")
        if "." in schema:
            raise Unsupported(
                f"table {table}: a DuckDB file has schemas and tables, and no level above",
                hint="use schema.table",
            )
        schema = ascii_lower(schema or "main")
        # A database has the name of its file: in hr.duckdb, hr could be the schema or the database.
        catalog = ascii_lower(Path(self.path).name.partition(".")[0])
        return TableName(schema, name, ascii_lower(name), catalog if catalog == schema != "main" else None)

    @contextmanager
    def session(self, *, writes: bool) -> Iterator[DuckDbSession]:
        refuse_bad_path(self.path)
        connection = self._connect(self.path if writes or Path(self.path).exists() else ":memory:")
        try:
            session = DuckDbSession(self, connection)
            session.execute("SET TimeZone = 'UTC'")
            yield session
        finally:
            connection.close()  # rolls back what was not committed

    def _connect(self, path: str) -> duckdb.DuckDBPyConnection:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise DRIVER.missing() from error
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                return duckdb.connect(path)
            except duckdb.Error as error:
                refusal = self.refusal(error)
                if not isinstance(refusal, TableBusy) or time.monotonic() > deadline:
                    raise refusal from error
                time.sleep(0.1)

    def check(self) -> None:
        with self.session(writes=False) as session:
            session.create_temporary("_tm_check", [NativeColumn("x", "INTEGER", "int")])
            reason = session.obstacle_to_create(TableName("main", "", ""))
        if reason:
            raise DestinationError(
                f"{self.path}: {reason}", hint="give this user write permission for the file and its folder"
            )

    def native_type(self, spark_type: str) -> str:
        return native_type(spark_type)

    def spark_type(self, native: str) -> str:
        return spark_type(native)

    def moment(self, at: datetime) -> exp.Expr:
        text = exp.Literal.string(at.astimezone(UTC).isoformat(" ", "microseconds"))
        return exp.cast(text, exp.DataType.build("TIMESTAMPTZ", dialect="duckdb"))

    def ordered(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        return value

    def comparable(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        return value

    def coerced(self, value: str, native: str) -> str:
        return f"CAST({value} AS {native})"

    def refusal(self, error: Exception) -> TallymarkError:
        import duckdb

        text = str(error)
        match error:
            case duckdb.IOException() if "Could not set lock" in text or "Conflicting lock" in text:
                return TableBusy(
                    f"{self.path}: another process has had this database open "
                    f"for more than {self.busy_seconds:g} seconds",
                    hint="only one process can write a DuckDB file: close the other one, or run again later",
                )
            case duckdb.IOException() if "not a valid DuckDB" in text:
                hint = "set `path` to a DuckDB file, or to a file that does not exist yet"
                return DestinationError(f"{self.path}: is not a DuckDB database", hint=hint)
            case duckdb.IOException() | duckdb.PermissionException():
                return DestinationError(
                    f"{self.path}: cannot be read or written ({text})",
                    hint="check the disk, and that this user may write to the file and its folder",
                )
            case duckdb.TransactionException():
                return TableMoved(f"{self.path}: another load committed first ({text}); nothing was written")
            case duckdb.ConstraintException():
                return RowsRefused.by_constraint(self.path, text)
            case _:
                return DestinationError(f"{self.path}: DuckDB reports: {text}")


@dataclass(frozen=True)
class DuckDbSession:
    engine: DuckDbEngine
    connection: duckdb.DuckDBPyConnection

    @property
    def dialect(self) -> SqlDialect:
        return DIALECT

    def execute(self, sql: str) -> int:
        import duckdb

        try:
            result = self.connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise self.engine.refusal(error) from error
        return int(result[0][0]) if result and isinstance(result[0][0], int) else -1

    def fetch(self, sql: str) -> list[Row]:
        return self.fetch_named(sql)[1]

    def fetch_values(self, sql: str, spark_types: Sequence[str]) -> list[Row]:
        return self.fetch_named(sql)[1]

    def fetch_named(self, sql: str) -> tuple[list[str], list[Row]]:
        """All queries go through Arrow: for timestamps with time zone as Python objects, the driver needs
        another package."""
        import duckdb

        try:
            table = self.connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise self.engine.refusal(error) from error
        columns = [[spark_value(value) for value in arrow_values(column)] for column in table.columns]
        return table.column_names, list(zip(*columns, strict=True))

    def describe(self, name: TableName) -> CatalogEntry | None:
        schema = DIALECT.text(name.schema or "main")
        here = f"database_name = current_database() AND lower(schema_name) = lower({schema})"
        wanted = f"lower({DIALECT.text(name.table)})"
        if self.fetch(f"SELECT 1 FROM duckdb_tables() WHERE {here} AND lower(table_name) = {wanted}"):
            columns = self._described(f"DESCRIBE {DIALECT.table(name)}")
            return CatalogEntry(columns, obstacle=self.obstacle_to_create(name))
        view = self.fetch(f"SELECT sql FROM duckdb_views() WHERE {here} AND lower(view_name) = {wanted}")
        return view_entry(view[0][0]) if view else None

    def view_columns(self, name: TableName) -> tuple[NativeColumn, ...]:
        return self._described(f"DESCRIBE SELECT * FROM {DIALECT.table(name)}")

    def _described(self, sql: str) -> tuple[NativeColumn, ...]:
        """DESCRIBE takes a sixth of the time of duckdb_columns(), and a load runs it ten times."""
        return tuple(
            NativeColumn(str(column), str(native), self.engine.spark_type(str(native)), nullable != "NO")
            for column, native, nullable, *_ in self.fetch(sql)
        )

    def replace_view(self, name: TableName, query: str) -> None:
        self.execute(f"CREATE OR REPLACE VIEW {DIALECT.table(name)} AS {query}")

    def obstacle_to_create(self, name: TableName) -> str:
        path = Path(self.engine.path)
        if path.exists() and not os.access(path, os.W_OK):
            return "the database file is read-only for this user"
        if not os.access(path.parent, os.W_OK):
            return f"this user may not write to the folder {path.parent}"
        return ""

    def create_temporary(self, name: str, columns: Sequence[NativeColumn]) -> None:
        defined = ", ".join(f"{DIALECT.quote(c.name)} {c.native}" for c in columns)
        self.execute(f"CREATE TEMP TABLE {DIALECT.quote(name)} ({defined})")

    def create_temporary_as(self, name: str, columns: Sequence[NativeColumn], query: str) -> None:
        values = coerced_values(self.engine, columns, "q")
        self.execute(f"CREATE TEMP TABLE {DIALECT.quote(name)} AS SELECT {values} FROM ({query}) AS q")

    def fill(self, name: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]) -> None:
        for table in tables:
            self.connection.register(_STAGING, table)
            try:
                self.execute(f"INSERT INTO {DIALECT.quote(name)} SELECT * FROM {_STAGING}")
            except DestinationError as error:
                raise self._with_column(columns, error) from error
            finally:
                self.connection.unregister(_STAGING)

    def _with_column(self, columns: Sequence[NativeColumn], error: DestinationError) -> DestinationError:
        for column in columns:
            try:
                self.fetch(
                    f"SELECT COUNT(CAST({DIALECT.quote(column.name)} AS {column.native})) FROM {_STAGING}"
                )
            except DestinationError as found:
                return RowsRefused(
                    f"column {column.name}: a value does not fit {column.native}: {found.message}",
                    hint=f"give {column.name} a rule in `columns`, so that such rows are quarantined",
                )
        return error

    def begin(self, name: TableName, *, exists: bool, lock: bool) -> None:
        self.execute("BEGIN")
        # The first statement takes the snapshot.
        self.fetch("SELECT 1 FROM duckdb_tables() LIMIT 1")

    def lock_markers(self, name: TableName) -> None:
        """Does nothing: two loads that create the marker tables at the same time conflict."""

    def change_type(self, name: TableName, column: NativeColumn) -> None:
        self.execute(
            f"ALTER TABLE {DIALECT.table(name)} ALTER {DIALECT.quote(column.name)} "
            f"TYPE {column.native} USING NULL"
        )

    def begin_read(self, name: TableName) -> None:
        self.begin(name, exists=True, lock=False)

    def fingerprint(self, name: TableName, columns: Sequence[NativeColumn]) -> str:
        """A sum: independent of the order of rows."""
        row = DIALECT.quote_list([column.name for column in columns])
        return str(self.fetch(f"SELECT COUNT(*) || ' ' || SUM(hash({row})) FROM {DIALECT.table(name)}")[0][0])

    def export(self, name: TableName, columns: Sequence[NativeColumn], file: Path) -> None:
        """DuckDB writes the file itself, in the types that `spark_type` gives."""
        values = ", ".join(
            f"CAST({DIALECT.quote(c.name)} AS {exported_type(c.spark)}) AS {DIALECT.quote(c.name)}"
            for c in columns
        )
        self.execute(
            f"COPY (SELECT {values} FROM {DIALECT.table(name)}) TO {DIALECT.text(str(file))} (FORMAT parquet)"
        )

    def commit(self) -> None:
        import duckdb

        try:
            self.connection.execute("COMMIT")
            sync_folder(Path(self.engine.path).parent)  # DuckDB syncs its files, not their names
        except (duckdb.TransactionException, duckdb.ConstraintException) as error:
            raise TableMoved(
                f"{self.engine.path}: another load committed first ({error}); nothing was written"
            ) from error
        except (duckdb.Error, OSError) as error:
            raise CommitUnknown(
                f"{self.engine.path}: the commit was not confirmed ({error})",
                hint="run again: the marker shows whether it was committed",
            ) from error
