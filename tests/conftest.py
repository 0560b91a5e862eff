"""One Spark session for the whole test run: starting one costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tallymark.config.project import SparkConfig
from tallymark.spark import Sessions


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    home = tmp_path_factory.mktemp("spark")
    config = SparkConfig(
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": str(Path(home) / "catalog"),
            "spark.driver.memory": "2g",
            # Tiny data: compiling queries and optimising hot code costs more than it saves.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": False,
        },
    )
    made = Sessions(config, home=home)
    yield made
    made.stop()


@pytest.fixture
def spark(sessions: Sessions) -> SparkSession:
    """An isolated session: settings and temporary views of one test do not reach another."""
    return sessions.isolated()
