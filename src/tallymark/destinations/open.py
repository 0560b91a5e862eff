"""From a named destination of `tallymark.yaml` to the object that applies plans."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from tallymark.config.project import DeltaDestinationConfig
from tallymark.destinations.contract import Destination
from tallymark.destinations.delta import DeltaDestination


def open_destination(
    config: DeltaDestinationConfig, spark: Callable[[], SparkSession], resolve: Callable[[str], str]
) -> Destination:
    root = None if config.path is None else resolve(config.path)
    return DeltaDestination(spark, root=root, catalog=config.catalog, properties=config.properties)
