"""A DuckDB database has the name of its file, and a schema may have the same name."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import tallymark as tm


def test_a_schema_called_like_the_file(spark: SparkSession, tmp_path: Path) -> None:
    destination = {"type": "duckdb", "path": str(tmp_path / "hr.duckdb")}
    frame = spark.sql("SELECT 1 AS id, 'a' AS name UNION ALL SELECT 2, 'b'")
    assert tm.merge(frame, "hr.staff", destination=destination, unique_key="id").inserted == 2
    assert tm.plan(frame, "hr.staff", destination=destination, unique_key="id").counts.unchanged == 2
    changed = spark.sql("SELECT 1 AS id, 'z' AS name")
    assert tm.merge(changed, "hr.staff", destination=destination, unique_key="id").updated == 1
