"""What is in the store of a scenario, read past the product: rows, markers, and what should not be there."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from database_rows import duckdb_rows, postgres_rows, sqlite_rows
from delta_rs import rows_of
from iceberg_readers import iceberg_rows, iceberg_table
from oracle import Row
from tallymark.model.receipt import Marker
from tallymark.model.table import SOURCE_FILE

SQLITE_FILE, DUCKDB_FILE = "shop.db", "shop.duckdb"
_OWN_TABLES = ("_tallymark_applied", "_tallymark_fence")


@dataclass(frozen=True)
class Found:
    """A marker of one content."""

    content_hash: str
    position: int  # within its batch
    marker: Marker


@dataclass(frozen=True)
class Store:
    destination: str
    root: Path
    url: str  # of PostgreSQL
    schema: str

    def rows(self, table: str) -> list[Row]:
        match self.destination:
            case "delta":
                found = rows_of(self._folder / table)
            case "iceberg":
                found = iceberg_rows(self._folder / table)
            case "sqlite":
                found = sqlite_rows(self.root / SQLITE_FILE, f"{self.schema}.{table}")
            case "duckdb":
                found = duckdb_rows(self.root / DUCKDB_FILE, f"{self.schema}.{table}")
            case _:
                found = postgres_rows(self.url, f"{self.schema}.{table}")
        return [_comparable(row) for row in found]

    def markers(self, table: str) -> list[Found]:
        """Those of an absent table are none."""
        if self.destination == "delta":
            return self._delta_markers(table)
        if self.destination == "iceberg":
            return self._iceberg_markers(table)
        schemas = self.destination != "sqlite"
        name = table if schemas else f"{self.schema}.{table}"
        place = f"{self.schema}._tallymark_applied" if schemas else "_tallymark_applied"
        found = self._query(f"SELECT content_hash, position, marker FROM {place} WHERE table_name = '{name}'")
        return [Found(content, position, _marker(text)) for content, position, text in found]

    def left_behind(self, tables: tuple[str, ...]) -> list[str]:
        """Staging that nobody will ever need."""
        match self.destination:
            case "delta":
                return [f"folder {path}" for path in self._folder.iterdir() if path.name not in tables]
            case "iceberg":
                folders = [f"folder {path}" for path in self._folder.iterdir() if path.name not in tables]
                refs = [ref for table in tables for ref in iceberg_table(self._folder / table).refs()]
                return folders + [f"branch {ref}" for ref in refs if ref != "main"]
            case "sqlite":
                query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
                own = {*_OWN_TABLES, *(f"{self.schema}.{table}" for table in tables)}
                left = {name for (name,) in self._query(query)} - own
                return [f"table {name}" for name in left] + self._files_beside(SQLITE_FILE)
            case "duckdb":
                found = self._query("SELECT table_name FROM duckdb_tables()")
                left = {name for (name,) in found} - {*_OWN_TABLES, *tables}
                return [f"table {name}" for name in left] + self._files_beside(DUCKDB_FILE)
            case _:
                return self._left_in_postgres(tables)

    def _files_beside(self, name: str) -> list[str]:
        return [str(path) for path in self.root.glob(f"{name}?*")]

    def _left_in_postgres(self, tables: tuple[str, ...]) -> list[str]:
        """A server notices the death of a client with some delay."""
        own = {*_OWN_TABLES, *tables}
        deadline = time.monotonic() + 10
        while True:
            found = self._query(f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}'")
            left = [f"table {name}" for (name,) in found if name not in own]
            left += [
                f"temporary table {name}"
                for (name,) in self._query("SELECT relname FROM pg_class WHERE relpersistence = 't'")
                if name.startswith("_tm")
            ]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)

    def _delta_markers(self, table: str) -> list[Found]:
        try:
            commits = DeltaTable(str(self._folder / table)).history()
        except TableNotFoundError:
            return []
        carried = [_marker(commit["userMetadata"]) for commit in commits if "userMetadata" in commit]
        return [
            Found(content, position, marker)
            for marker in carried
            for position, content in enumerate(marker.content_hashes)
        ]

    def _iceberg_markers(self, table: str) -> list[Found]:
        if not (self._folder / table / "metadata").is_dir():
            return []
        found = iceberg_table(self._folder / table)
        at = found.current_snapshot()
        carried = []
        while at is not None:
            text = at.summary.additional_properties.get("tallymark.marker") if at.summary else None
            carried += [] if text is None else [_marker(text)]
            at = None if at.parent_snapshot_id is None else found.snapshot_by_id(at.parent_snapshot_id)
        return [
            Found(content, position, marker)
            for marker in carried
            for position, content in enumerate(marker.content_hashes)
        ]

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        try:
            match self.destination:
                case "sqlite":
                    with closing(sqlite3.connect(self.root / SQLITE_FILE)) as database:
                        return database.execute(query).fetchall()
                case "duckdb":
                    with duckdb.connect(str(self.root / DUCKDB_FILE)) as database:
                        return database.execute(query).fetchall()
                case _:
                    with psycopg.connect(self.url) as connection:
                        return connection.execute(query).fetchall()
        except (sqlite3.OperationalError, duckdb.CatalogException, psycopg.errors.UndefinedTable):
            return []

    @property
    def _folder(self) -> Path:
        return self.root / "warehouse" / self.schema


def _marker(text: str) -> Marker:
    marker = Marker.from_json(text)
    assert marker is not None, text
    return marker


def _comparable(row: Row) -> Row:
    """Wall-clock times, and the file's name instead of its place."""
    plain = {name: naive(value) if isinstance(value, datetime) else value for name, value in row.items()}
    if SOURCE_FILE in plain:
        plain[SOURCE_FILE] = Path(str(row[SOURCE_FILE])).name
    return plain


def naive(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)
