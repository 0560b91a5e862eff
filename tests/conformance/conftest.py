from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bench import MANY, Bench
from enrolled import DESTINATIONS, Surroundings
from pyspark.sql import SparkSession


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "enrolled" in metafunc.fixturenames:
        core = {of for mark in metafunc.definition.iter_markers("core") for of in mark.args}
        names = [n for n, e in DESTINATIONS.items() if MANY or not e.differs_in or e.differs_in in core]
        metafunc.parametrize("enrolled", names)


@pytest.fixture
def bench(request: pytest.FixtureRequest, enrolled: str, spark: SparkSession, tmp_path: Path) -> Bench:
    def postgres() -> str:
        fresh: Callable[[], str] = request.getfixturevalue("postgres")
        return fresh()

    return Bench(spark, DESTINATIONS[enrolled].make(Surroundings(spark, tmp_path, postgres)))
