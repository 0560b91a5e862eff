"""Tables of a SQLite file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tallymark.destinations.declaration import (
    YES,
    Capabilities,
    DestinationKind,
    DestinationOptions,
    Resolve,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.destinations.warehouse.destination import WarehouseDestination

CAPABILITIES = Capabilities(
    "sqlite",
    nested_types=False,
    time_travel=False,
    sees_foreign_commits=False,
    locks_while_loading=True,
    views=YES,
    takes_arrow=True,
)


class SqliteDestinationConfig(DestinationOptions):
    """Tables of a SQLite file. SQLite has no schemas: table silver.orders has this whole name there."""

    type: Literal["sqlite"]
    path: str = Field(min_length=1, description="sqlite: the database file; its folder must exist")
    durable: bool = Field(
        True,
        description="A load is recorded only once it survives a power loss (synchronous = EXTRA). With "
        "false, SQLite's own setting holds",
    )


def _open(
    options: SqliteDestinationConfig, _: Callable[[], SparkSession], resolve: Resolve
) -> WarehouseDestination:
    from tallymark.destinations.sqlite.engine import SqliteEngine
    from tallymark.destinations.warehouse.destination import WarehouseDestination

    return WarehouseDestination(SqliteEngine(resolve(options.path), durable=options.durable))


def _location(options: SqliteDestinationConfig, resolve: Resolve) -> str:
    return resolve(options.path)


KIND = DestinationKind(
    name="sqlite",
    title="SQLite",
    options=SqliteDestinationConfig,
    capabilities=CAPABILITIES,
    open=_open,
    location=_location,
)
