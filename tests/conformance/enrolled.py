"""Every destination joins the conformance suite by one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from database_rows import duckdb_rows, postgres_rows, sqlite_rows
from delta_rs import rows_of
from hostile_settings import hostile_beside
from iceberg_readers import iceberg_rows
from oracle import Row
from tallymark.destinations.contract import Destination
from tallymark.destinations.delta.table import DeltaDestination, DeltaTable
from tallymark.destinations.duckdb.engine import DuckDbEngine
from tallymark.destinations.iceberg import IcebergDestinationConfig
from tallymark.destinations.iceberg.catalog import IcebergLocator
from tallymark.destinations.iceberg.table import IcebergDestination
from tallymark.destinations.postgres.engine import PostgresEngine
from tallymark.destinations.registry import spark_needs
from tallymark.destinations.sqlite.engine import SqliteEngine
from tallymark.destinations.warehouse.destination import WarehouseDestination
from tallymark.spark import Sessions


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
    """A variant of a destination that is enrolled already runs only tests that are marked as `core` for what it
    differs in, and all of them in `make property`."""

    make: Callable[[Surroundings], Subject]
    differs_in: str = ""  # place, reading, writing or settings: a variant
    session: Callable[[SparkSession], SparkSession] = lambda spark: spark  # on which all its work is done
    is_quick: bool = False
    slow_as: str = ""  # the destination whose marks of slow tests count for it too


def _delta_path(
    around: Surroundings,
    properties: dict[str, str] | None = None,
    kind: type[DeltaDestination] = DeltaDestination,
) -> Subject:
    root = str(around.folder / "lake")
    destination = kind(lambda: around.spark, root=root, properties=properties)
    table = Path(root, "silver", "orders")
    return Subject(destination, "silver.orders", lambda: [_without_zones(row) for row in rows_of(table)])


def _delta_catalog(around: Surroundings) -> Subject:
    destination = DeltaDestination(lambda: around.spark, catalog="spark_catalog")
    table = f"conformance.t_{uuid4().hex}"
    return Subject(destination, table, lambda: _collected(around.spark.table(table)))


def _delta_change_feed(around: Surroundings) -> Subject:
    """With the change data feed on, updates go through MERGE instead of replace by columns."""
    return _delta_path(around, {"delta.enableChangeDataFeed": "true"})


class _LargeTable(DeltaTable):
    def is_large(self) -> bool:
        return True


class _TakenForLarge(DeltaDestination):
    def table(self, name: str) -> DeltaTable:
        return _LargeTable(self._start_spark, self._locator.at(name))


def _delta_large(around: Surroundings) -> Subject:
    """Of a large table, a few columns are read before the others."""
    return _delta_path(around, kind=_TakenForLarge)


def _iceberg(around: Surroundings, **options: object) -> Subject:
    warehouse = around.folder / "ice"
    name = f"ice_{uuid4().hex[:8]}"
    config = IcebergDestinationConfig.model_validate(
        {"type": "iceberg", "warehouse": str(warehouse), "name": name, **options}
    )
    destination = IcebergDestination(lambda: around.spark, IcebergLocator.of(config, str), config)
    table = Path(warehouse, "silver", "orders")
    return Subject(destination, "silver.orders", lambda: [_without_zones(row) for row in iceberg_rows(table)])


def _without_zones(value: Any) -> Any:
    """As Spark gives moments to Python where the machine is in UTC, nested or not."""
    match value:
        case dict():
            return {name: _without_zones(inner) for name, inner in value.items()}
        case list():
            return [_without_zones(inner) for inner in value]
        case datetime():
            return value.replace(tzinfo=None)
    return value


def _collected(frame: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _sqlite(around: Surroundings) -> Subject:
    path = around.folder / "shop.sqlite"
    table = "silver.orders"
    return Subject(
        WarehouseDestination(SqliteEngine(str(path), SOON)), table, lambda: sqlite_rows(path, table)
    )


def _duckdb(around: Surroundings) -> Subject:
    path = around.folder / "shop.duckdb"
    table = "silver.orders"
    return Subject(
        WarehouseDestination(DuckDbEngine(str(path), SOON)), table, lambda: duckdb_rows(path, table)
    )


def _postgres(around: Surroundings) -> Subject:
    """The schema is the load's to make."""
    url, table = around.postgres(), f"silver_{uuid4().hex[:8]}.orders"
    return Subject(WarehouseDestination(PostgresEngine(url, SOON)), table, lambda: postgres_rows(url, table))


def _beside_hostile_settings(spark: SparkSession) -> SparkSession:
    """As a load gets it whose caller has set everything otherwise."""
    return Sessions.of(hostile_beside(spark), spark_needs()).isolated()


SOON = 0.5  # seconds: in a test nobody lets go of a lock

DESTINATIONS = {
    "delta": Enrolled(_delta_path),
    "iceberg": Enrolled(_iceberg, slow_as="delta"),
    "sqlite": Enrolled(_sqlite),
    "duckdb": Enrolled(_duckdb),
    "postgres": Enrolled(_postgres),
    "delta_catalog": Enrolled(_delta_catalog, differs_in="place"),
    "delta_change_feed": Enrolled(_delta_change_feed, differs_in="writing"),
    "delta_large": Enrolled(_delta_large, differs_in="reading"),
    "delta_hostile": Enrolled(_delta_path, "settings", _beside_hostile_settings),
    "sqlite_hostile": Enrolled(_sqlite, "settings", _beside_hostile_settings, is_quick=True),
}
