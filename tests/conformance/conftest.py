from __future__ import annotations

from pathlib import Path

import pytest
from bench import Bench
from enrolled import DESTINATIONS
from pyspark.sql import SparkSession


@pytest.fixture(params=list(DESTINATIONS))
def bench(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Bench:
    destination, table = DESTINATIONS[request.param](spark, tmp_path)
    return Bench(spark, destination, table)
