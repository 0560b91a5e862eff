"""What a database engine implements to become a destination.

An engine knows its names, its types and its errors. A session is one connection with at most one transaction:
nothing in it is durable before `commit`, and leaving it gives up everything that was not committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from tallymark.destinations.declaration import Capabilities
from tallymark.errors import DestinationError, Unsupported
from tallymark.model.table import Column

Row = tuple[object, ...]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted_list(names: Sequence[str], table: str = "") -> str:
    prefix = f"{table}." if table else ""
    return ", ".join(prefix + quoted(name) for name in names)


def without_case(name: str) -> str:
    """Engines that do not heed case do so for ASCII only: to them Ä and ä are two names."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def a_view(definition: object, made: str = "") -> Relation:
    """Its identity is what it says: a view that somebody has made anew or changed is another one."""
    digest = sha256(str(definition).encode()).hexdigest()[:16]
    return Relation((), f"{made}view {digest}", obstacle="is a view", is_table=False, is_view=True)


@dataclass(frozen=True)
class Name:
    """Where a table is; without a schema, in the one that the connection is in, or the engine has none."""

    schema: str | None
    table: str
    key: str  # the same for all spellings of one table
    catalog: str | None = None  # where the schema's name alone could mean something else

    @property
    def parts(self) -> list[str]:
        return [part for part in (self.catalog, self.schema, self.table) if part is not None]

    @property
    def sql(self) -> str:
        return ".".join(map(quoted, self.parts))

    @property
    def schema_sql(self) -> str:
        return ".".join(map(quoted, self.parts[:-1]))

    def beside(self, table: str) -> Name:
        return replace(self, table=table, key=table)


@dataclass(frozen=True)
class NativeColumn:
    name: str
    native: str  # as the engine writes the type
    spark: str
    nullable: bool = True

    @property
    def column(self) -> Column:
        return Column(self.name, self.spark, self.nullable)


@dataclass(frozen=True)
class RowAddress:
    """A column that the engine itself gives a table, by which it finds a row again within the transaction."""

    column: str
    native: str
    prefer: str  # statements around one that joins by it: the engine would rather read the whole table
    afterwards: str


@dataclass(frozen=True)
class Relation:
    """A table in the catalog. `obstacle` says why it cannot be loaded into: a view, no permission."""

    columns: tuple[NativeColumn, ...]  # of a table; those of a view are asked for by `view_columns`
    # Changes when the table is dropped and made again, where the engine can tell; and with what a view says.
    table_id: str = ""
    obstacle: str = ""
    is_table: bool = True
    is_view: bool = False
    address: RowAddress | None = None  # None: there is none, or it is not the same for all parts of the table

    def native(self, name: str) -> str | None:
        wanted = name.casefold()
        return next((c.native for c in self.columns if c.name.casefold() == wanted), None)


class Session(Protocol):
    """Every driver's exception comes out of these methods as a TallymarkError."""

    def execute(self, sql: str) -> int:
        """The number of rows that the statement changed; -1 for one that changes none."""

    def fetch(self, sql: str) -> list[Row]:
        """Rows of numbers and texts."""

    def values(self, sql: str, spark_types: Sequence[str]) -> list[Row]:
        """Rows of values of these types, as Spark would give them to Python."""

    def named(self, sql: str) -> tuple[list[str], list[Row]]:
        """The names of the columns, and rows of values as the engine has them."""

    def relation(self, name: Name) -> Relation | None: ...

    def view_columns(self, name: Name) -> tuple[NativeColumn, ...]:
        """Raises DestinationError for a view that can no longer be read. May have to read all of it."""

    def replace_view(self, name: Name, query: str) -> None:
        """Makes the view, or puts the query into the place of the one that is there."""

    def obstacle_to_create(self, name: Name) -> str:
        """Why no table can be made in that place; empty if one can."""

    def temporary(self, name: str, columns: Sequence[NativeColumn]) -> None:
        """Makes an empty table that nobody else sees and that ends with the session."""

    def temporary_of(self, name: str, columns: Sequence[NativeColumn], query: str) -> None:
        """Such a table of what a query finds, by the names of these columns and in their types."""

    def fill(self, name: str, columns: Sequence[NativeColumn], tables: Iterator[pa.Table]) -> None:
        """Fills a temporary table."""

    def begin(self, name: Name, *, exists: bool, lock: bool) -> None:
        """From here on the table is seen in one state; with `lock` other writers wait until the end."""

    def hold_markers(self, name: Name) -> None:
        """So that two loads do not make the marker tables at the same time."""

    def change_type(self, name: Name, column: NativeColumn) -> None:
        """Of a table that is empty."""

    def freeze(self, name: Name) -> None:
        """For reading only: from here on the table and its markers are seen in one state."""

    def fingerprint(self, name: Name, columns: Sequence[NativeColumn]) -> str:
        """Of all rows in whatever order. Reads the whole table."""

    def export(self, name: Name, columns: Sequence[NativeColumn], file: Path) -> None:
        """The rows as a Parquet file in the types that Spark has for them, never all of them in memory.
        Raises OSError when the file cannot be written."""

    def commit(self) -> None:
        """Raises CommitUnknown when the answer got lost, TableMoved when another transaction was faster."""


class Engine(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def dialect(self) -> str:
        """Of sqlglot."""

    @property
    def place(self) -> str:
        """Which database, for messages and keys: no secrets."""

    @property
    def null_safe(self) -> str:
        """The operator that is true for two NULLs."""

    @property
    def joins_by_index(self) -> bool:
        """It has no hash join: to join, it makes an index of the whole table for each query."""

    @property
    def longest_name(self) -> int:
        """In bytes of UTF-8; a longer one the engine would cut off."""

    def locate(self, table: str) -> Name: ...

    def session(self, *, writes: bool) -> AbstractContextManager[Session]:
        """Without `writes`, not even an empty database file is made."""

    def check(self) -> None: ...

    def native_type(self, spark_type: str) -> str:
        """Raises Unsupported for what cannot be stored without loss."""

    def spark_type(self, native: str) -> str: ...

    def moment(self, at: datetime) -> exp.Expr:
        """A timestamp of the type that `native_type` gives for `timestamp`."""

    def ordered(self, value: exp.Expr, spark_type: str) -> exp.Expr: ...

    def comparable(self, value: exp.Expr, spark_type: str) -> exp.Expr: ...

    def coerced(self, value: str, native: str) -> str:
        """A value that may have lost its type in a query, such as NULL, in that type again."""


def coerced_values(engine: Engine, columns: Sequence[NativeColumn], relation: str) -> str:
    """The columns of a relation, each certain to have its type."""
    return ", ".join(
        f"{engine.coerced(f'{relation}.{quoted(c.name)}', c.native)} AS {quoted(c.name)}" for c in columns
    )


def located(engine: Engine, table: str) -> Name:
    """Raises Unsupported for a name that the engine would cut off."""
    name = engine.locate(table)
    for part in (name.schema, name.table):
        refuse_long_name(engine, part or "", "table")
    return name


def refuse_long_name(engine: Engine, name: str, kind: str) -> None:
    if len(name.encode()) > engine.longest_name:
        raise Unsupported(
            f"{kind} {name}: the name is longer than {engine.longest_name} bytes, "
            f"which {engine.capabilities.name} would cut off",
            hint="choose a shorter name",
        )


def refuse_no_place(path: str) -> None:
    """A database in a file is made where there is none, but its folder is not."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise DestinationError(f"{path}: there is no folder {folder}", hint="create the folder first")
    if Path(path).is_dir():
        raise DestinationError(
            f"{path}: is a folder, not a database file",
            hint=f"set `path` to a file, such as {Path(path).name}/shop.db; it is made if it is not there",
        )
