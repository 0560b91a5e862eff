"""From a named destination of `tallymark.yaml` to the object that applies plans."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from tallymark.config.project import (
    DeltaDestinationConfig,
    DestinationConfig,
    DuckDbDestinationConfig,
    PostgresDestinationConfig,
    SqliteDestinationConfig,
)
from tallymark.destinations.contract import Destination
from tallymark.destinations.delta import DeltaDestination
from tallymark.destinations.duckdb import DuckDbEngine
from tallymark.destinations.postgres import PostgresEngine
from tallymark.destinations.sql_destination import SqlDestination
from tallymark.destinations.sqlite import SqliteEngine


def open_destination(
    config: DestinationConfig, spark: Callable[[], SparkSession], resolve: Callable[[str], str]
) -> Destination:
    match config:
        case DeltaDestinationConfig():
            root = None if config.path is None else resolve(config.path)
            return DeltaDestination(spark, root=root, catalog=config.catalog, properties=config.properties)
        case PostgresDestinationConfig():
            return SqlDestination(PostgresEngine(config.url))
        case SqliteDestinationConfig():
            return SqlDestination(SqliteEngine(resolve(config.path)))
        case DuckDbDestinationConfig():
            return SqlDestination(DuckDbEngine(resolve(config.path)))
