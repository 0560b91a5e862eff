"""One database of each engine, and a short way to load into it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import duckdb
import psycopg
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from database_rows import duckdb_rows, postgres_rows, sqlite_rows
from driver_rows import arrow_rows, prepare, struct
from oracle import Row
from tallymark.destinations.contract import PreparedLoad
from tallymark.destinations.duckdb.engine import DuckDbEngine
from tallymark.destinations.postgres.engine import PostgresEngine
from tallymark.destinations.sqlite.engine import SqliteEngine
from tallymark.destinations.warehouse.destination import WarehouseDestination
from tallymark.destinations.warehouse.engine import Engine
from tallymark.model.plan import Plan
from tallymark.model.receipt import Counts, Marker
from tallymark.model.settings import MergeSettings
from tallymark.model.table import Column
from tallymark.strategies.build import build_plan

SOON = 0.5  # seconds: in a test no lock is released in time
AS_OF = datetime(2026, 11, 1, 10, 15, tzinfo=UTC)


@dataclass
class Database:
    kind: str
    engine: Engine
    execute: Callable[[str], list[tuple[object, ...]]]  # without Tallymark
    rows: Callable[[str], list[Row]]
    where: str  # file or URL
    spark: SparkSession
    sequence: int = 0
    _schema: str = field(default_factory=lambda: f"silver_{uuid4().hex[:8]}")

    def silver(self, table: str) -> str:
        """A table in a schema that does not exist yet."""
        return f"{self._schema}.{table}"

    @property
    def destination(self) -> WarehouseDestination:
        return WarehouseDestination(self.engine)

    def plan(self, table: str, settings: MergeSettings, schema: str) -> Plan:
        fields = struct(schema).fields
        incoming = [Column(f.name, self.destination.column_type(f.dataType.simpleString())) for f in fields]
        as_of = AS_OF + timedelta(hours=self.sequence)
        return build_plan(table, settings, incoming, self.destination.table(table).shape(), as_of=as_of)

    def frame(self, schema: str, rows: list[Row]) -> DataFrame:
        return self.spark.createDataFrame(arrow_rows(schema, rows))

    def prepare(
        self, plan: Plan, schema: str, rows: list[Row], *, for_commit: bool = True
    ) -> AbstractContextManager[PreparedLoad]:
        return prepare(
            self.destination,
            self.destination.table(plan.table),
            self.spark,
            plan,
            schema,
            rows,
            for_commit=for_commit,
        )

    def marker(self, plan: Plan, counts: Counts, content: str = "", sequence: int | None = None) -> Marker:
        number = self.sequence if sequence is None else sequence
        hashes = tuple(hash_of(part) for part in (content or f"c{number}").split(","))
        key = self.destination.table(plan.table).key
        batch = f"batch-{number}"
        return Marker(batch, "test", key, number, 1, hashes, plan.as_of, "test", counts, plan.unique_by)

    def load(
        self, table: str, settings: MergeSettings, schema: str, rows: list[Row], content: str = ""
    ) -> Counts:
        self.sequence += 1
        plan = self.plan(table, settings, schema)
        with self.prepare(plan, schema, rows) as prepared:
            prepared.commit(self.marker(plan, prepared.counts, content))
            return prepared.counts

    def objects(self) -> set[str]:
        """Every table, view and schema that the database has."""
        queries = {
            "sqlite": "SELECT name FROM sqlite_schema",
            "duckdb": "SELECT schema_name || '.' || table_name FROM duckdb_tables() "
            "UNION ALL SELECT schema_name FROM duckdb_schemas() WHERE NOT internal",
            "postgres": "SELECT n.nspname || '.' || relname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = relnamespace WHERE nspname !~ '^pg_(catalog|toast)$|information_schema' "
            "UNION ALL SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'",
        }
        return {str(row[0]) for row in self.execute(queries[self.kind])}


def sqlite_database(folder: Path, spark: SparkSession) -> Database:
    path = folder / "shop.sqlite"

    def execute(sql: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(path)
        found = connection.execute(sql).fetchall()
        connection.commit()
        connection.close()
        return found

    engine = SqliteEngine(str(path), SOON)
    return Database("sqlite", engine, execute, lambda table: sqlite_rows(path, table), str(path), spark)


def duckdb_database(folder: Path, spark: SparkSession) -> Database:
    path = folder / "shop.duckdb"

    def execute(sql: str) -> list[tuple[object, ...]]:
        with duckdb.connect(str(path)) as connection:
            return connection.execute(sql).fetchall()

    engine = DuckDbEngine(str(path), SOON)
    return Database("duckdb", engine, execute, lambda table: duckdb_rows(path, table), str(path), spark)


def postgres_database(url: str, spark: SparkSession) -> Database:
    def execute(sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    return Database(
        "postgres", PostgresEngine(url, SOON), execute, lambda t: postgres_rows(url, t), url, spark
    )


def hash_of(content: str) -> str:
    return sha256(content.encode()).hexdigest()


class FileReader:
    """Stands in for a Spark session: reads Parquet files with Arrow."""

    @property
    def read(self) -> FileReader:
        return self

    def option(self, name: str, value: str) -> FileReader:
        return self

    def parquet(self, address: str) -> Any:
        return pq.read_table(address.removeprefix("file://"))


@dataclass
class Input:
    database: Database

    def version(self, table: str = "t") -> str | None:
        return self.database.destination.table(table).input_version()

    def rows(self, version: str | None, table: str = "t") -> list[tuple[object, ...]]:
        with self.database.destination.table(table).read(version or "", self.database.spark) as found:
            return sorted(tuple(row.values()) for row in cast(Any, found).to_pylist())

    def now(self) -> list[tuple[object, ...]]:
        return self.rows(self.version())
