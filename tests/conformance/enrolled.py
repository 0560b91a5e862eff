"""Every destination joins the conformance suite by one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from database_rows import duckdb_rows, postgres_rows, sqlite_rows
from oracle import Row
from tallymark.destinations.contract import Destination
from tallymark.destinations.delta import DeltaDestination
from tallymark.destinations.duckdb import DuckDbEngine
from tallymark.destinations.postgres import PostgresEngine
from tallymark.destinations.sql_destination import SqlDestination
from tallymark.destinations.sqlite import SqliteEngine


@dataclass(frozen=True)
class Surroundings:
    """What a destination may use to come into being."""

    spark: SparkSession
    folder: Path  # empty
    postgres: Callable[[], str]  # starts a server when first asked; the URL of an empty schema


@dataclass(frozen=True)
class Subject:
    destination: Destination
    table: str  # not there yet
    rows: Callable[
        [], list[Row]
    ]  # of the table, read past Tallymark: Decimal, datetime, nested dict and list


@dataclass(frozen=True)
class Enrolled:
    """A variant of a destination that is enrolled already runs only the tests marked `core`, unless it has
    tests of its own, and all of them in `make property`."""

    make: Callable[[Surroundings], Subject]
    variant: bool = False
    core: bool = True


def _delta_path(
    around: Surroundings,
    properties: dict[str, str] | None = None,
    kind: type[DeltaDestination] = DeltaDestination,
) -> Subject:
    root = str(around.folder / "lake")
    destination = kind(lambda: around.spark, root=root, properties=properties)
    read = around.spark.read.format("delta")
    return Subject(destination, "silver.orders", lambda: _collected(read.load(f"{root}/silver/orders")))


def _delta_catalog(around: Surroundings) -> Subject:
    destination = DeltaDestination(lambda: around.spark, catalog="spark_catalog")
    table = f"conformance.t_{uuid4().hex}"
    return Subject(destination, table, lambda: _collected(around.spark.table(table)))


def _delta_change_feed(around: Surroundings) -> Subject:
    """With the change data feed on, updates go through MERGE instead of replace by columns."""
    return _delta_path(around, {"delta.enableChangeDataFeed": "true"})


class _TakenForLarge(DeltaDestination):
    def _is_large(self, table: str) -> bool:
        return True


def _delta_large(around: Surroundings) -> Subject:
    """Of a large table, a few columns are read before the others."""
    return _delta_path(around, kind=_TakenForLarge)


def _collected(frame: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _sqlite(around: Surroundings) -> Subject:
    path = around.folder / "shop.sqlite"
    table = "silver.orders"
    return Subject(SqlDestination(SqliteEngine(str(path), SOON)), table, lambda: sqlite_rows(path, table))


def _duckdb(around: Surroundings) -> Subject:
    path = around.folder / "shop.duckdb"
    table = "silver.orders"
    return Subject(SqlDestination(DuckDbEngine(str(path), SOON)), table, lambda: duckdb_rows(path, table))


def _postgres(around: Surroundings) -> Subject:
    """The schema is the load's to make."""
    url, table = around.postgres(), f"silver_{uuid4().hex[:8]}.orders"
    return Subject(SqlDestination(PostgresEngine(url, SOON)), table, lambda: postgres_rows(url, table))


SOON = 0.5  # seconds: in a test nobody lets go of a lock

DESTINATIONS = {
    "delta": Enrolled(_delta_path),
    "sqlite": Enrolled(_sqlite),
    "duckdb": Enrolled(_duckdb),
    "postgres": Enrolled(_postgres),
    "delta_catalog": Enrolled(_delta_catalog, variant=True),
    "delta_change_feed": Enrolled(_delta_change_feed, variant=True),
    "delta_large": Enrolled(_delta_large, variant=True, core=False),
}
