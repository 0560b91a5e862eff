"""Every test that asks for `place` runs on SQLite, DuckDB and a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unit.destinations.sql_places import Place, duckdb_place, postgres_place, sqlite_place


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Place:
    match request.param:
        case "sqlite":
            return sqlite_place(tmp_path, spark)
        case "duckdb":
            return duckdb_place(tmp_path, spark)
        case _:
            return postgres_place(request.getfixturevalue("postgres")(), spark)
