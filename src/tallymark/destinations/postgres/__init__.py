"""Tables of PostgreSQL 14 or newer."""

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

DRIVER = Driver("PostgreSQL", module="psycopg", extra="postgres")
CAPABILITIES = Capabilities(
    "postgres",
    nested_types=False,
    time_travel=False,
    sees_foreign_commits=False,
    locks_while_loading=True,
    views=YES,
    takes_arrow=True,
)


class PostgresDestinationConfig(DestinationOptions):
    """Tables of PostgreSQL 14 or newer; silver.orders is table orders of schema silver."""

    type: Literal["postgres"]
    url: str = Field(min_length=1, description="postgres only: postgresql://user:${PGPASSWORD}@host/db")
    durable: bool = Field(
        True,
        description="A load is recorded only once the server has it on its disk, also if synchronous_commit "
        "is off there",
    )


def _open(
    options: PostgresDestinationConfig, _: Callable[[], SparkSession], __: Resolve
) -> WarehouseDestination:
    from tallymark.destinations.postgres.engine import PostgresEngine
    from tallymark.destinations.warehouse.destination import WarehouseDestination

    return WarehouseDestination(PostgresEngine(options.url, durable=options.durable))


KIND = DestinationKind(
    name="postgres",
    title="PostgreSQL",
    options=PostgresDestinationConfig,
    capabilities=CAPABILITIES,
    open=_open,
    location=lambda options, _: options.url,
    driver=DRIVER,
)
