"""DuckDB: a file with schemas and tables, in native types for everything, nested ones too.

Only one process at a time may hold the file, so it is opened for each operation and closed after it. Within a
process transactions are optimistic: two loads of one table collide in its row of the fence.
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
from tallymark.destinations.duckdb.types import exported_type, native_type, spark_type
from tallymark.destinations.warehouse.arrow import plain
from tallymark.destinations.warehouse.engine import (
    Name,
    NativeColumn,
    Relation,
    Row,
    a_view,
    coerced_values,
    literal,
    quoted,
    quoted_list,
    refuse_no_place,
    without_case,
)
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
    dialect: ClassVar[str] = "duckdb"
    null_safe: ClassVar[str] = "IS NOT DISTINCT FROM"
    joins_by_index: ClassVar[bool] = False
    longest_name: ClassVar[int] = 10_000

    @property
    def place(self) -> str:
        return self.path

    def locate(self, table: str) -> Name:
        schema, _, name = table.rpartition(".")
        if "." in schema:
            raise Unsupported(
                f"table {table}: DuckDB has schemas, and nothing above them", hint="use schema.table"
            )
        schema = without_case(schema or "main")
        # A database is called like its file: in hr.duckdb, hr.staff could be a table of either.
        catalog = without_case(Path(self.path).name.partition(".")[0])
        return Name(schema, name, without_case(name), catalog if catalog == schema != "main" else None)

    @contextmanager
    def session(self, *, writes: bool) -> Iterator[DuckDbSession]:
        refuse_no_place(self.path)
        connection = self._connect(self.path if writes or Path(self.path).exists() else ":memory:")
        try:
            session = DuckDbSession(self, connection)
            session.execute("SET TimeZone = 'UTC'")
            yield session
        finally:
            connection.close()  # what was not committed is gone

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
            session.temporary("_tm_check", [NativeColumn("x", "INTEGER", "int")])
            reason = session.obstacle_to_create(Name("main", "", ""))
        if reason:
            raise DestinationError(
                f"{self.path}: {reason}", hint="let this user write the file and its folder"
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
                    f"{self.path}: another process holds this database, "
                    f"for more than {self.busy_seconds:g} seconds",
                    hint="DuckDB lets one process at a time write: close the other one, or run again later",
                )
            case duckdb.IOException() if "not a valid DuckDB" in text:
                hint = "set `path` to a DuckDB file, or to one that is not there yet"
                return DestinationError(f"{self.path}: is not a DuckDB database", hint=hint)
            case duckdb.IOException() | duckdb.PermissionException():
                return DestinationError(
                    f"{self.path}: cannot be read or written ({text})",
                    hint="check its disk, and that this user may write the file and its folder",
                )
            case duckdb.TransactionException():
                return TableMoved(f"{self.path}: another load was faster ({text}); nothing was written")
            case duckdb.ConstraintException():
                return RowsRefused.by_constraint(self.path, text)
            case _:
                return DestinationError(f"{self.path}: DuckDB refuses: {text}")


@dataclass(frozen=True)
class DuckDbSession:
    engine: DuckDbEngine
    connection: duckdb.DuckDBPyConnection

    def execute(self, sql: str) -> int:
        import duckdb

        try:
            result = self.connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise self.engine.refusal(error) from error
        return int(result[0][0]) if result and isinstance(result[0][0], int) else -1

    def fetch(self, sql: str) -> list[Row]:
        import duckdb

        try:
            return self.connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise self.engine.refusal(error) from error

    def values(self, sql: str, spark_types: Sequence[str]) -> list[Row]:
        return self.named(sql)[1]

    def named(self, sql: str) -> tuple[list[str], list[Row]]:
        """Through Arrow: the driver's own timestamps with zone would need another package."""
        import duckdb

        try:
            table = self.connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise self.engine.refusal(error) from error
        columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
        return table.column_names, list(zip(*columns, strict=True))

    def relation(self, name: Name) -> Relation | None:
        schema = literal(name.schema or "main")
        here = f"database_name = current_database() AND lower(schema_name) = lower({schema})"
        wanted = f"lower({literal(name.table)})"
        if self.fetch(f"SELECT 1 FROM duckdb_tables() WHERE {here} AND lower(table_name) = {wanted}"):
            columns = self._described(f"DESCRIBE {name.sql}")
            return Relation(columns, obstacle=self.obstacle_to_create(name))
        view = self.fetch(f"SELECT sql FROM duckdb_views() WHERE {here} AND lower(view_name) = {wanted}")
        return a_view(view[0][0]) if view else None

    def view_columns(self, name: Name) -> tuple[NativeColumn, ...]:
        return self._described(f"DESCRIBE SELECT * FROM {name.sql}")

    def _described(self, sql: str) -> tuple[NativeColumn, ...]:
        """A sixth of the time that duckdb_columns() takes, which is asked ten times in a load."""
        return tuple(
            NativeColumn(str(column), str(native), self.engine.spark_type(str(native)), nullable != "NO")
            for column, native, nullable, *_ in self.fetch(sql)
        )

    def replace_view(self, name: Name, query: str) -> None:
        self.execute(f"CREATE OR REPLACE VIEW {name.sql} AS {query}")

    def obstacle_to_create(self, name: Name) -> str:
        path = Path(self.engine.path)
        if path.exists() and not os.access(path, os.W_OK):
            return "the database file is read-only for this user"
        if not os.access(path.parent, os.W_OK):
            return f"this user may not write the folder {path.parent}"
        return ""

    def temporary(self, name: str, columns: Sequence[NativeColumn]) -> None:
        defined = ", ".join(f"{quoted(c.name)} {c.native}" for c in columns)
        self.execute(f"CREATE TEMP TABLE {quoted(name)} ({defined})")

    def temporary_of(self, name: str, columns: Sequence[NativeColumn], query: str) -> None:
        values = coerced_values(self.engine, columns, "q")
        self.execute(f"CREATE TEMP TABLE {quoted(name)} AS SELECT {values} FROM ({query}) AS q")

    def fill(self, name: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]) -> None:
        for table in tables:
            self.connection.register(_STAGING, table)
            try:
                self.execute(f"INSERT INTO {quoted(name)} SELECT * FROM {_STAGING}")
            except DestinationError as error:
                raise self._naming_the_column(columns, error) from error
            finally:
                self.connection.unregister(_STAGING)

    def _naming_the_column(
        self, columns: Sequence[NativeColumn], error: DestinationError
    ) -> DestinationError:
        for column in columns:
            try:
                self.fetch(f"SELECT COUNT(CAST({quoted(column.name)} AS {column.native})) FROM {_STAGING}")
            except DestinationError as found:
                return RowsRefused(
                    f"column {column.name}: a value does not fit {column.native}: {found.message}",
                    hint=f"give {column.name} a rule in `columns`, so that such values become bad rows",
                )
        return error

    def begin(self, name: Name, *, exists: bool, lock: bool) -> None:
        self.execute("BEGIN")
        # The first statement chooses the state that is seen.
        self.fetch("SELECT 1 FROM duckdb_tables() LIMIT 1")

    def hold_markers(self, name: Name) -> None:
        """Two loads that make the marker tables at the same time collide."""

    def change_type(self, name: Name, column: NativeColumn) -> None:
        self.execute(f"ALTER TABLE {name.sql} ALTER {quoted(column.name)} TYPE {column.native} USING NULL")

    def freeze(self, name: Name) -> None:
        self.begin(name, exists=True, lock=False)

    def fingerprint(self, name: Name, columns: Sequence[NativeColumn]) -> str:
        """A sum, since rows have no order."""
        row = quoted_list([column.name for column in columns])
        return str(self.fetch(f"SELECT COUNT(*) || ' ' || SUM(hash({row})) FROM {name.sql}")[0][0])

    def export(self, name: Name, columns: Sequence[NativeColumn], file: Path) -> None:
        """DuckDB writes the file itself. Types that Spark lacks become what `spark_type` says of them."""
        values = ", ".join(
            f"CAST({quoted(c.name)} AS {exported_type(c.spark)}) AS {quoted(c.name)}" for c in columns
        )
        self.execute(f"COPY (SELECT {values} FROM {name.sql}) TO {literal(str(file))} (FORMAT parquet)")

    def commit(self) -> None:
        import duckdb

        try:
            self.connection.execute("COMMIT")
        except (duckdb.IOException, duckdb.FatalException) as error:
            raise CommitUnknown(
                f"{self.engine.path}: the commit was not confirmed ({error})",
                hint="run again: the marker tells whether it landed",
            ) from error
        except duckdb.Error as error:
            raise TableMoved(
                f"{self.engine.path}: another load was faster ({error}); nothing was written"
            ) from error
