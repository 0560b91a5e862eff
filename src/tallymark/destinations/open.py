"""From a named destination of `tallymark.yaml` to the object that applies plans."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from tallymark.config.project import DeltaDestinationConfig, DestinationConfig, PostgresDestinationConfig
from tallymark.destinations.contract import Destination
from tallymark.destinations.delta import DeltaDestination
from tallymark.errors import Unsupported


def open_destination(
    config: DestinationConfig, spark: Callable[[], SparkSession], resolve: Callable[[str], str]
) -> Destination:
    match config:
        case DeltaDestinationConfig():
            root = None if config.path is None else resolve(config.path)
            return DeltaDestination(spark, root=root, catalog=config.catalog, properties=config.properties)
        case PostgresDestinationConfig():
            raise Unsupported("destination type postgres is not built yet", hint="use type: delta")
