"""Every destination joins the conformance suite by one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from tallymark.destinations.contract import Destination
from tallymark.destinations.delta import DeltaDestination

Make = Callable[[SparkSession, Path], tuple[Destination, str]]  # destination and a table that is not there


@dataclass(frozen=True)
class Enrolled:
    """A variant of a destination that is enrolled already runs only the tests marked `core`."""

    make: Make
    variant: bool = False


def _delta_path(spark: SparkSession, folder: Path) -> tuple[Destination, str]:
    return DeltaDestination(lambda: spark, root=str(folder / "lake")), "silver.orders"


def _delta_catalog(spark: SparkSession, folder: Path) -> tuple[Destination, str]:
    return DeltaDestination(lambda: spark, catalog="spark_catalog"), f"conformance.t_{uuid4().hex}"


def _delta_change_feed(spark: SparkSession, folder: Path) -> tuple[Destination, str]:
    """With the change data feed on, updates go through MERGE instead of replace by columns."""
    properties = {"delta.enableChangeDataFeed": "true"}
    return DeltaDestination(lambda: spark, root=str(folder / "lake"), properties=properties), "silver.orders"


DESTINATIONS = {
    "delta": Enrolled(_delta_path),
    "delta_catalog": Enrolled(_delta_catalog, variant=True),
    "delta_change_feed": Enrolled(_delta_change_feed, variant=True),
}
