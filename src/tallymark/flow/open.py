"""From a named destination of `tallymark.yaml` to the object that applies plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tallymark.config.project import (
    DeltaDestinationConfig,
    DestinationConfig,
    DuckDbDestinationConfig,
    PostgresDestinationConfig,
    SqliteDestinationConfig,
)
from tallymark.destinations.contract import Destination, Place
from tallymark.destinations.delta.place import DeltaPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_destination(
    config: DestinationConfig, spark: Callable[[], SparkSession], resolve: Callable[[str], str]
) -> Destination:
    """Each imports its own drivers, and no others."""
    if isinstance(config, DeltaDestinationConfig):
        from tallymark.destinations.delta.destination import DeltaDestination

        place = _delta_place(config, resolve)
        return DeltaDestination(spark, root=place.root, catalog=place.catalog, properties=config.properties)
    from tallymark.destinations.warehouse.destination import SqlDestination

    match config:
        case PostgresDestinationConfig():
            from tallymark.destinations.postgres.engine import PostgresEngine

            return SqlDestination(PostgresEngine(config.url))
        case SqliteDestinationConfig():
            from tallymark.destinations.sqlite.engine import SqliteEngine

            return SqlDestination(SqliteEngine(resolve(config.path)))
        case DuckDbDestinationConfig():
            from tallymark.destinations.duckdb.engine import DuckDbEngine

            return SqlDestination(DuckDbEngine(resolve(config.path)))


def light_place(config: DestinationConfig, resolve: Callable[[str], str]) -> Place | None:
    """What a run with nothing new asks, where opening the whole destination would import Spark."""
    return _delta_place(config, resolve) if isinstance(config, DeltaDestinationConfig) else None


def _delta_place(config: DeltaDestinationConfig, resolve: Callable[[str], str]) -> DeltaPlace:
    return DeltaPlace(None if config.path is None else resolve(config.path), config.catalog)
