"""Tables of a DuckDB file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tallymark.destinations.declaration import (
    YES,
    Capabilities,
    DestinationKind,
    DestinationOptions,
    Driver,
    Resolve,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.destinations.warehouse.destination import WarehouseDestination

DRIVER = Driver("DuckDB", module="duckdb", extra="duckdb")
CAPABILITIES = Capabilities(
    "duckdb",
    nested_types=True,
    time_travel=False,
    sees_foreign_commits=False,
    locks_while_loading=False,
    views=YES,
    takes_arrow=True,
)


class DuckDbDestinationConfig(DestinationOptions):
    """Tables of a DuckDB file; silver.orders is table orders of schema silver."""

    type: Literal["duckdb"]
    path: str = Field(min_length=1, description="duckdb: the database file; its folder must exist")


def _open(
    options: DuckDbDestinationConfig, _: Callable[[], SparkSession], resolve: Resolve
) -> WarehouseDestination:
    from tallymark.destinations.duckdb.engine import DuckDbEngine
    from tallymark.destinations.warehouse.destination import WarehouseDestination

    return WarehouseDestination(DuckDbEngine(resolve(options.path)))


def _location(options: DuckDbDestinationConfig, resolve: Resolve) -> str:
    return resolve(options.path)


KIND = DestinationKind(
    name="duckdb",
    title="DuckDB",
    options=DuckDbDestinationConfig,
    capabilities=CAPABILITIES,
    open=_open,
    location=_location,
    driver=DRIVER,
)
