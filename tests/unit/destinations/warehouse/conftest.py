"""Every test that asks for `database` runs on SQLite, DuckDB and a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unit.destinations.databases import Database, duckdb_database, postgres_database, sqlite_database


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Database:
    match request.param:
        case "sqlite":
            return sqlite_database(tmp_path, spark)
        case "duckdb":
            return duckdb_database(tmp_path, spark)
        case _:
            return postgres_database(request.getfixturevalue("postgres")(), spark)
