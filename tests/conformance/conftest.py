from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bench import MANY, Bench
from enrolled import DESTINATIONS, Surroundings
from pyspark.sql import SparkSession


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "enrolled" in metafunc.fixturenames:
        core = any(mark.name == "core" for mark in metafunc.definition.iter_markers())
        runs = {n: MANY or not entry.variant or (core and entry.core) for n, entry in DESTINATIONS.items()}
        metafunc.parametrize("enrolled", [name for name, wanted in runs.items() if wanted])


@pytest.fixture
def bench(request: pytest.FixtureRequest, enrolled: str, spark: SparkSession, tmp_path: Path) -> Bench:
    def postgres() -> str:
        fresh: Callable[[], str] = request.getfixturevalue("postgres")
        return fresh()

    return Bench(spark, DESTINATIONS[enrolled].make(Surroundings(spark, tmp_path, postgres)))
