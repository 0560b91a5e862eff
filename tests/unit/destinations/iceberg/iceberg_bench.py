"""Loads into an Iceberg table of a chosen catalog, and other writers of the same table."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from conformance.bench import Bench
from conformance.enrolled import Subject
from iceberg_readers import iceberg_rows
from oracle import Row
from tallymark.destinations.iceberg import IcebergDestinationConfig
from tallymark.destinations.iceberg.catalog import IcebergLocator
from tallymark.destinations.iceberg.table import IcebergDestination

TABLE = "silver.orders"


def iceberg_bench(spark: SparkSession, folder: Path, **options: Any) -> Bench:
    given = {"type": "iceberg", "warehouse": str(folder / "ice"), "name": f"ice_{uuid4().hex[:8]}", **options}
    config = IcebergDestinationConfig.model_validate(given)
    locator = IcebergLocator.of(config, str)
    locator.configure(spark)
    destination = IcebergDestination(lambda: spark, locator, config)
    return Bench(spark, Subject(destination, TABLE, lambda: _rows(folder / "ice" / "silver" / "orders")))


def _rows(folder: Path) -> list[Row]:
    rows = iceberg_rows(folder)
    return [
        {n: v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for n, v in row.items()} for row in rows
    ]


def sql_name(bench: Bench) -> str:
    return bench.destination.table(TABLE)._sql  # type: ignore[attr-defined, no-any-return]


def catalog_name(bench: Bench) -> str:
    return sql_name(bench).split(".")[0]


def reopened(bench: Bench) -> Bench:
    """As another process sees the table, with the sequences that it goes on with."""
    return Bench(bench.spark, bench.subject, bench.sequence)
