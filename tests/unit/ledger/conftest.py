"""Every test that asks for `url`, `ledger` or `worker` runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallymark.ledger import Ledger, open_ledger
from unit.ledger.ledger_setup import TABLE, Clock, Worker


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state/ledger.db"
    fresh: Callable[[], str] = request.getfixturevalue("postgres")
    return fresh()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(url: str, clock: Clock) -> Iterator[Ledger]:
    with open_ledger(url, clock=clock) as opened:
        yield opened


@pytest.fixture
def worker(ledger: Ledger, clock: Clock) -> Worker:
    lease = ledger.acquire_lease(TABLE, "worker-1", 3600)
    return Worker(ledger, clock, lease, ledger.start_run("shop", "run", host="host-1", pid=7))
