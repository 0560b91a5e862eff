"""A database as a destination: it labels and writes itself. What differs is in its engine."""

from __future__ import annotations

from collections.abc import Mapping

from tallymark.destinations.contract import Views
from tallymark.destinations.declaration import Capabilities
from tallymark.destinations.warehouse.engine import Engine
from tallymark.destinations.warehouse.table import WarehouseTable
from tallymark.destinations.warehouse.views import DatabaseViews
from tallymark.model.receipt import Receipt


class WarehouseDestination:
    """Also its own `TableLocator`: no Spark is needed to ask a database."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self.capabilities: Capabilities = engine.capabilities
        self.table_properties: Mapping[str, str] = {}
        self.views: Views | None = DatabaseViews(engine)

    def table(self, name: str) -> WarehouseTable:
        return WarehouseTable(name, self._engine)

    def key(self, table: str) -> str:
        return self.table(table).key

    def was_rolled_back(self, table: str, last: Receipt) -> bool:
        return self.table(table).was_rolled_back(last)

    def column_type(self, spark_type: str) -> str:
        if spark_type == "void":  # it fits whatever the table has, or becomes text
            return spark_type
        return self._engine.spark_type(self._engine.native_type(spark_type))

    def check(self) -> None:
        self._engine.check()
