"""A map is the same map whatever the order of its entries, in databases as in Delta."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tallymark as tm


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_the_order_of_entries_does_not_count(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    destination = {"type": kind, "path": str(tmp_path / "shop.db")}
    for entries, changed in (("'a', 1, 'b', 2", "inserted"), ("'b', 2, 'a', 1", "unchanged")):
        frame = spark.sql(f"SELECT 1 AS id, map({entries}) AS labels")
        receipt = tm.merge(frame, "t", destination=destination, unique_key="id")
        assert getattr(receipt, changed) == 1
