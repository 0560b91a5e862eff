"""Delta Lake: tables in folders below a root, tables of a Spark catalog, or one folder given outright."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from tallymark.destinations.contract import Views
from tallymark.destinations.delta import CAPABILITIES
from tallymark.destinations.delta.location import DeltaLocator
from tallymark.destinations.delta.table import DeltaTable
from tallymark.destinations.lakehouse.commit import write_error
from tallymark.model.sql_text import quoted

# Deletion vectors cut a small merge into a large table to about a third (docs/adr/0005).
DEFAULT_PROPERTIES = {"delta.enableDeletionVectors": "true"}


class DeltaDestination:
    capabilities = CAPABILITIES
    views: Views | None = None

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        *,
        root: str | None = None,
        catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
    ):
        """With neither `root` nor `catalog`, a table's name is its folder or URL."""
        self._start_spark = spark
        self._locator = DeltaLocator(root, catalog)
        self.table_properties: Mapping[str, str] = DEFAULT_PROPERTIES | dict(properties or {})

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self._start_spark, self._locator.at(name))

    def column_type(self, spark_type: str) -> str:
        return spark_type

    def check(self) -> None:
        """Writes a probe table of its own and touches no other."""
        spark, root = self._start_spark(), self._locator.root
        if root is None:
            catalog = self._locator.catalog or "spark_catalog"
            spark.sql(f"SHOW SCHEMAS IN {quoted(catalog)}").collect()
            return
        probe = f"{root.rstrip('/')}/_tallymark/probe"
        try:
            spark.range(1).write.format("delta").mode("overwrite").save(probe)
        except Exception as error:
            raise write_error(probe, error) from error
