"""What a database engine implements to become a destination.

An engine knows its dialect, its types and its errors. A session is one connection with at most one
transaction: nothing in it is durable before `commit`, and a session that ends without one is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from tallymark.destinations.declaration import Capabilities
from tallymark.errors import DestinationError, Unsupported
from tallymark.model.table import Column

Row = tuple[object, ...]


@dataclass(frozen=True)
class TableName:
    """Where a table is. Without a schema it is in the default schema of the connection, or the engine has no
    schemas."""

    schema: str | None
    table: str
    key: str  # the same for all spellings of one table
    catalog: str | None = None  # where the schema's name alone would be ambiguous

    @property
    def parts(self) -> list[str]:
        return [part for part in (self.catalog, self.schema, self.table) if part is not None]

    def beside(self, table: str) -> TableName:
        """Another table in the same schema."""
        return replace(self, table=table, key=table)


@dataclass(frozen=True)
class SqlDialect:
    """How an engine writes names, texts and conditions. Quoting follows sqlglot's dialect of this name."""

    sqlglot: str
    null_safe: str = "IS NOT DISTINCT FROM"  # the operator that is true for two NULLs
    has_tuple_in: bool = True  # `(a, b) IN (SELECT …)`; without it, `key_in` writes EXISTS
    # What the translation of a query in Spark SQL needs to know:
    has_types: bool = True  # False: dates, times and decimals are texts, and a cast may change the value
    like_ignores_case: bool = False
    lacks: Mapping[type[exp.Expr], str] = field(default_factory=dict)  # functions → why they are refused

    def quote(self, name: str) -> str:
        return _quoted(name, self.sqlglot)

    def quote_list(self, names: Sequence[str], table: str = "") -> str:
        prefix = f"{table}." if table else ""
        return ", ".join(prefix + self.quote(name) for name in names)

    def table(self, name: TableName) -> str:
        return ".".join(map(self.quote, name.parts))

    def schema(self, name: TableName) -> str:
        return ".".join(map(self.quote, name.parts[:-1]))

    def text(self, value: str) -> str:
        return exp.Literal.string(value).sql(dialect=self.sqlglot)

    def render(self, expression: exp.Expr) -> str:
        return expression.sql(dialect=self.sqlglot)

    def same(self, left: str, right: str, names: Sequence[str]) -> str:
        """True where both rows have the same values in these columns. NULL equals NULL."""
        return " AND ".join(
            f"{left}.{self.quote(name)} {self.null_safe} {right}.{self.quote(name)}" for name in names
        )

    def any_null(self, table: str, names: Sequence[str]) -> str:
        return " OR ".join(f"{table}.{self.quote(name)} IS NULL" for name in names)

    def key_in(self, table: str, names: Sequence[str], keys: str, where: str) -> str:
        """True for rows of `table` whose `names` occur among the rows of `keys`, which has the alias o and is
        filtered by `where`. Rows with a NULL in one of these columns never match."""
        if not self.has_tuple_in:
            equal = " AND ".join(f"o.{self.quote(n)} = {table}.{self.quote(n)}" for n in names)
            return f"EXISTS (SELECT 1 FROM {self.quote(keys)} AS o WHERE {where} AND {equal})"
        filled = " AND ".join(f"o.{self.quote(name)} IS NOT NULL" for name in names)
        return (
            f"({self.quote_list(names, table)}) IN (SELECT {self.quote_list(names, 'o')} "
            f"FROM {self.quote(keys)} AS o WHERE {where} AND {filled})"
        )


@lru_cache(maxsize=4096)
def _quoted(name: str, dialect: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def ascii_lower(name: str) -> str:
    """Engines with case-insensitive names ignore case for ASCII only: to them Ä and ä are two names."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


@dataclass(frozen=True)
class NativeColumn:
    name: str
    native: str  # the type as the engine writes it
    spark: str
    nullable: bool = True

    @property
    def column(self) -> Column:
        return Column(self.name, self.spark, self.nullable)


@dataclass(frozen=True)
class RowAddress:
    """A column that the engine itself gives every table. It identifies a row within one transaction."""

    column: str
    native: str
    prefer: str  # statement before a join by address: by default the planner would scan the whole table
    afterwards: str  # statement that restores the planner's settings


@dataclass(frozen=True)
class CatalogEntry:
    """What the catalog has under a table's name: a table, a view or something else."""

    columns: tuple[NativeColumn, ...]  # of a table; those of a view come from `Session.view_columns`
    # Differs after a table is dropped and created again, where the engine can tell, and after the definition
    # of a view changes.
    table_id: str = ""
    obstacle: str = ""  # why it cannot be loaded into, such as a missing permission
    is_table: bool = True
    is_view: bool = False
    address: RowAddress | None = None  # None if there is none, or if partitions share its values

    def native(self, name: str) -> str | None:
        wanted = name.casefold()
        return next((c.native for c in self.columns if c.name.casefold() == wanted), None)


def view_entry(definition: object, oid: str = "") -> CatalogEntry:
    """A view is identified by its definition: one that somebody replaced is another view."""
    digest = sha256(str(definition).encode()).hexdigest()[:16]
    return CatalogEntry((), f"{oid}view {digest}", obstacle="is a view", is_table=False, is_view=True)


class Session(Protocol):
    """All methods raise TallymarkErrors; no exception of a driver leaves them."""

    @property
    def dialect(self) -> SqlDialect:
        """That of its engine."""

    def execute(self, sql: str) -> int:
        """The number of rows that the statement changed; -1 if it is not a statement that changes rows."""

    def fetch(self, sql: str) -> list[Row]:
        """Rows of numbers and texts."""

    def fetch_values(self, sql: str, spark_types: Sequence[str]) -> list[Row]:
        """Rows of values of these types, as Spark would return them to Python."""

    def fetch_named(self, sql: str) -> tuple[list[str], list[Row]]:
        """The column names, and rows of values as the driver returns them."""

    def describe(self, name: TableName) -> CatalogEntry | None:
        """What the catalog has under this name, seen by the current transaction; None if nothing."""

    def view_columns(self, name: TableName) -> tuple[NativeColumn, ...]:
        """Raises DestinationError for a view that can no longer be read. May read the whole view."""

    def replace_view(self, name: TableName, query: str) -> None:
        """Creates the view, or replaces the query of an existing one."""

    def obstacle_to_create(self, name: TableName) -> str:
        """Why no table of this name can be created; empty if one can."""

    def create_temporary(self, name: str, columns: Sequence[NativeColumn]) -> None:
        """Creates an empty table that only this session sees and that ends with it."""

    def create_temporary_as(self, name: str, columns: Sequence[NativeColumn], query: str) -> None:
        """Creates such a table from a query, with these columns in these types."""

    def fill(self, name: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]) -> None:
        """Fills a temporary table."""

    def begin(self, name: TableName, *, exists: bool, lock: bool) -> None:
        """Begins a transaction that sees the table in one state. With `lock`, other writers wait until it
        ends."""

    def lock_markers(self, name: TableName) -> None:
        """Keeps two loads from creating the marker tables at the same time."""

    def change_type(self, name: TableName, column: NativeColumn) -> None:
        """Expects an empty table."""

    def begin_read(self, name: TableName) -> None:
        """Begins a read-only transaction that sees the table and its markers in one state."""

    def fingerprint(self, name: TableName, columns: Sequence[NativeColumn]) -> str:
        """A digest of all rows, independent of their order. Reads the whole table."""

    def export(self, name: TableName, columns: Sequence[NativeColumn], file: Path) -> None:
        """Writes the rows to a Parquet file, in Spark's types, without holding all of them in memory. Raises
        OSError when the file cannot be written."""

    def commit(self) -> None:
        """Raises CommitUnknown when the connection is lost before the answer, TableMoved when another
        transaction committed first."""


class Engine(Protocol):
    @property
    def capabilities(self) -> Capabilities:
        """As in the declaration of the kind."""

    @property
    def dialect(self) -> SqlDialect:
        """How it writes names, texts and conditions."""

    @property
    def database(self) -> str:
        """Identifies the database in messages and keys. Contains no secrets."""

    @property
    def joins_by_index(self) -> bool:
        """Whether the engine lacks hash joins: each join then builds an index over the whole table."""

    @property
    def longest_name(self) -> int:
        """In bytes of UTF-8. The engine would truncate longer names."""

    def qualify(self, table: str) -> TableName:
        """Raises Unsupported for a name with more parts than the engine has levels."""

    def session(self, *, writes: bool) -> AbstractContextManager[Session]:
        """Without `writes`, not even an empty database file is created."""

    def check(self) -> None:
        """For `doctor`: raises a TallymarkError when the database cannot be reached or written."""

    def native_type(self, spark_type: str) -> str:
        """Raises Unsupported for what cannot be stored without loss."""

    def spark_type(self, native: str) -> str:
        """The Spark type in which values of a native type are read; `string` for unknown types."""

    def moment(self, at: datetime) -> exp.Expr:
        """A literal of the type that `native_type` gives for `timestamp`."""

    def ordered(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        """The value in a form that the engine sorts as Spark does."""

    def comparable(self, value: exp.Expr, spark_type: str) -> exp.Expr:
        """The value in a form that the engine can compare."""

    def coerced(self, value: str, native: str) -> str:
        """Casts a value that may have lost its type in a query, such as NULL, back to that type."""


def coerced_values(engine: Engine, columns: Sequence[NativeColumn], table: str) -> str:
    """The columns of a table or subquery, each cast to its type."""
    quote = engine.dialect.quote
    return ", ".join(
        f"{engine.coerced(f'{table}.{quote(c.name)}', c.native)} AS {quote(c.name)}" for c in columns
    )


def qualified_name(engine: Engine, table: str) -> TableName:
    """Raises Unsupported for a name that the engine would truncate."""
    name = engine.qualify(table)
    for part in (name.schema, name.table):
        refuse_long_name(engine, part or "", "table")
    return name


def refuse_long_name(engine: Engine, name: str, kind: str) -> None:
    if len(name.encode()) > engine.longest_name:
        raise Unsupported(
            f"{kind} {name}: the name is longer than {engine.longest_name} bytes, "
            f"and {engine.capabilities.name} would truncate it",
            hint="choose a shorter name",
        )


def refuse_bad_path(path: str) -> None:
    """For databases in one file: the file is created if it is missing, its folder is not."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise DestinationError(f"{path}: there is no folder {folder}", hint="create the folder first")
    if Path(path).is_dir():
        raise DestinationError(
            f"{path}: is a folder, not a database file",
            hint=f"set `path` to a file, such as {Path(path).name}/shop.db; a missing file is created",
        )
