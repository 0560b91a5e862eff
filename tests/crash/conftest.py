from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crash.tally import Tally, summary
from crash.worker import SEED, Workshop
from tallymark.spark import Sessions


@pytest.fixture(scope="session")
def workshop(sessions: Sessions) -> Workshop:
    return Workshop(sessions.isolated())


@pytest.fixture(autouse=True)
def nothing_left_in_the_cache(request: pytest.FixtureRequest, sessions: Sessions) -> Iterator[None]:
    """What dead workers had cached. Other tests share that cache: only `make crash` runs none that rely on it."""
    yield
    if request.node.get_closest_marker("big"):
        sessions.isolated().catalog.clearCache()


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Iterator[Tally]:
    made = Tally(record_property)
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for some in terminalreporter.stats.values() for report in some]
    if lines := summary(reports):
        terminalreporter.section(f"kills, repeat with TALLYMARK_SEED={SEED}")
        for line in lines:
            terminalreporter.write_line(line)
        failed = len(terminalreporter.stats.get("failed", ()))
        terminalreporter.write_line(f"tests that found a difference from the oracle: {failed}")
