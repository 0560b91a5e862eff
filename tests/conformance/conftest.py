from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.bench import Bench
from conformance.enrolled import DESTINATIONS, Surroundings
from driver_rows import MANY


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "enrolled" in metafunc.fixturenames:
        core = {of for mark in metafunc.definition.iter_markers("core") for of in mark.args}
        names = [n for n, e in DESTINATIONS.items() if MANY or not e.differs_in or e.differs_in in core]
        metafunc.parametrize("enrolled", names)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is not asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.callspec.params.get("enrolled") if hasattr(item, "callspec") else None
        if name and _is_slow(name, item):
            item.add_marker("slow")


def _is_slow(name: str, item: pytest.Item) -> bool:
    """On Delta a load takes seconds, on DuckDB one."""
    slow_on = {kind for mark in item.iter_markers("slow_on") for kind in mark.args}
    entry = DESTINATIONS[name]
    is_variant = bool(entry.differs_in and not entry.is_quick)
    return not slow_on.isdisjoint((name, entry.slow_as)) or is_variant


@pytest.fixture
def bench(request: pytest.FixtureRequest, enrolled: str, spark: SparkSession, tmp_path: Path) -> Bench:
    def postgres() -> str:
        fresh: Callable[[], str] = request.getfixturevalue("postgres")
        return fresh()

    chosen = DESTINATIONS[enrolled]
    session = chosen.session(spark)
    return Bench(session, chosen.make(Surroundings(session, tmp_path, postgres)))
