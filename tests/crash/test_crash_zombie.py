"""A worker that is paused past its lease, wakes up after another has taken over, and tries to commit."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crash.loads import Loads, codes
from crash.scenarios import DESTINATIONS, Scenario
from crash.seams import BEFORE, At, Point, raising, watched_spark
from crash.worker import Order, _import_path, _load
from shared_spark import Jvm
from tallymark.destinations.delta import write as delta_write
from tallymark.destinations.duckdb.engine import DuckDbEngine
from tallymark.destinations.iceberg import write as iceberg_write
from tallymark.destinations.lakehouse.commit import LakehouseLoad
from tallymark.destinations.postgres.engine import PostgresEngine
from tallymark.destinations.sqlite.engine import SqliteEngine
from tallymark.destinations.warehouse.markers import APPLIED, MarkerTables
from tallymark.errors import DestinationError, LedgerError
from tallymark.flow.lease import HeldLease
from tallymark.model.receipt import Marker
from tallymark.model.report import PipelineReport
from tallymark.spark import Sessions

FENCED, LEASE_LOST, BUSY = "TM503", "TM602", "TM507"
# As late as another worker can still get in: databases lock the table from here to the commit.
LATEST = {name: Point("session.begin", BEFORE) for name in DESTINATIONS} | {
    "delta": Point("spark.save", BEFORE),
    "iceberg": Point("spark.sql CALL", BEFORE),
}
LAKEHOUSES = ("delta", "iceberg")
ONE_BY_ONE = "batch: {max_files: 1}"


@pytest.fixture(params=DESTINATIONS)
def loads(
    request: pytest.FixtureRequest, tmp_path: Path, sessions: Sessions, postgres: Callable[[], str]
) -> Loads:
    """The table is there already, with one load; a second file waits."""
    scenario = Scenario.build(
        tmp_path, request.param, ("append",), postgres=postgres(), file_count=1, settings=ONE_BY_ONE
    )
    made = Loads(scenario, sessions)
    made.run()
    scenario.drop("append")
    return made


@pytest.fixture
def no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do not notice that they have lost their lease, so that the destination alone must refuse."""
    monkeypatch.setattr(HeldLease, "ensure", lambda self: None)


@contextmanager
def no_fence() -> Iterator[None]:
    """The same code without the comparisons of sequence and contents."""
    write, marked = MarkerTables.write, delta_write._marked_and_fenced

    def without_key(self: MarkerTables, marker: Marker) -> Any:
        if self._home(APPLIED) is not None:
            contents = ", ".join(self.session.dialect.text(content) for content in marker.content_hashes)
            self.session.execute(f"DELETE FROM {self._at(APPLIED)} WHERE content_hash IN ({contents})")
        return write(self, marker)

    @contextmanager
    def only_marked(spark: Any, marker: Marker) -> Iterator[None]:
        with marked(spark, marker):
            spark.conf.unset(delta_write._APP_ID)
            spark.conf.unset(delta_write._APP_VERSION)
            yield

    def cherry_pick(spark: SparkSession, target: iceberg_write.IcebergTarget, branch: str) -> None:
        refs = spark.sql(f"SELECT snapshot_id FROM {target.sql}.refs WHERE name = '{branch}'")
        number = refs.collect()[0][0]
        spark.sql(f"CALL {target.catalog}.system.cherrypick_snapshot('{target.name}', {number})").collect()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MarkerTables, "refuse_late", lambda self, table, marker: None)
        patch.setattr(MarkerTables, "write", without_key)
        patch.setattr(LakehouseLoad, "_refuse_held", lambda self, marker: None)
        patch.setattr(delta_write, "_marked_and_fenced", only_marked)
        patch.setattr(iceberg_write, "publish", cherry_pick)
        yield


def row_count(loads: Loads) -> int:
    return len(loads.scenario.rows("append"))


def runs(loads: Loads) -> None:
    assert len(loads.run().receipts) == 1


def test_a_zombie_is_refused_by_the_destination(loads: Loads, no_stop: None) -> None:
    """Delta drops the zombie's write, which then finds the batch in the log, committed by the successor."""
    zombie = loads.run(At(LATEST[loads.scenario.destination], lambda: runs(loads)))
    refused = LEASE_LOST if loads.scenario.destination in LAKEHOUSES else FENCED
    assert (codes(zombie), zombie.receipts) == ([refused], ())
    loads.finish()
    assert loads.scenario.differences() == []


@pytest.mark.slow
def test_without_the_fence_the_zombie_doubles_its_rows(loads: Loads, no_stop: None) -> None:
    before = row_count(loads)
    with no_fence():
        loads.run(At(LATEST[loads.scenario.destination], lambda: runs(loads)))
    assert row_count(loads) == before + 6
    assert loads.scenario.differences() != []


@pytest.mark.slow
def test_a_zombie_stops_when_its_lease_was_taken(loads: Loads) -> None:
    """It plans again, since the table has moved, and then looks after its lease."""
    zombie = loads.run(At(Point("destination.prepare", BEFORE), lambda: runs(loads)))
    assert (codes(zombie), zombie.receipts) == ([LEASE_LOST], ())
    loads.finish()
    assert loads.scenario.differences() == []


@pytest.mark.slow
def test_a_late_commit_of_a_batch_that_was_given_up(loads: Loads, no_stop: None) -> None:
    """The successor's try of the batch fails and its file is put into a new one. The zombie's commit of the
    old batch comes when the successor is about to commit the new one: the first of the two counts."""
    before = row_count(loads)
    zombie, successor = run_in_turn(loads)
    assert row_count(loads) == before + 3
    if loads.scenario.destination == "iceberg":  # the next writer has removed the branch of the dead load
        assert (codes(zombie), zombie.receipts) == (["TM500", LEASE_LOST], ())
        assert (codes(successor), len(successor.receipts)) == ([], 1)
    else:
        assert codes(zombie) == [LEASE_LOST]
        assert (codes(successor), successor.receipts) == ([FENCED], ())
    loads.finish()
    assert loads.scenario.differences() == []


def run_in_turn(loads: Loads) -> tuple[PipelineReport, PipelineReport]:
    latest = LATEST[loads.scenario.destination]
    zombies_thread = threading.current_thread()
    ready, go = threading.Event(), threading.Event()
    passed: set[threading.Thread] = set()
    ended: list[PipelineReport] = []
    fails = At(Point("prepared.commit", BEFORE), raising(lambda: DestinationError("injected")))
    other = threading.Thread(target=lambda: ended.append(loads.run(pausing, spark_too=False)))

    def pausing(point: Point) -> None:
        thread = threading.current_thread()
        if point != latest or thread in passed:
            return
        passed.add(thread)
        if thread is zombies_thread:
            assert codes(loads.run(fails)) == ["TM500"]
            other.start()
            assert ready.wait(180)
        else:
            ready.set()
            assert go.wait(180)

    zombie = loads.run(pausing)
    go.set()
    other.join(180)
    return zombie, ended[0]


@pytest.mark.slow
def test_a_process_suspended_while_it_planned(loads: Loads, tmp_path: Path, spark: SparkSession) -> None:
    """It wakes up to a table that has moved, and finds its lease taken."""
    with suspended(loads, Point("destination.prepare", BEFORE), spark):
        assert len(loads.run().receipts) == 1
    assert failures_of_the_woken(tmp_path) == [LEASE_LOST]
    loads.finish()
    assert loads.scenario.differences() == []


@pytest.mark.slow
def test_a_process_suspended_in_its_commit(
    loads: Loads, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta drops what it writes then. A database keeps the table locked for it, so that the successor gets
    no turn, and finds the marker as soon as it does."""
    for engine in (SqliteEngine, DuckDbEngine, PostgresEngine):
        name = f"{engine.__module__}.{engine.__name__}"
        monkeypatch.setattr(name, partial(engine, busy_seconds=0.5))
    destination = loads.scenario.destination
    locks = destination not in LAKEHOUSES
    point = Point("session.commit", BEFORE) if locks else LATEST[destination]
    with suspended(loads, point, spark):
        report = loads.run()
        assert (codes(report), len(report.receipts)) == (([BUSY], 0) if locks else ([], 1))
    assert failures_of_the_woken(tmp_path) == [LEASE_LOST]
    loads.finish()
    assert loads.scenario.differences() == []


@contextmanager
def suspended(loads: Loads, point: Point, spark: SparkSession) -> Iterator[None]:
    """A worker in its own process stands still inside, and goes on after it. Its lease has run out, by the
    clock of the ledger that others use."""
    root = loads.scenario.root
    process = multiprocessing.get_context("forkserver").Process(
        target=load_and_stop_at, args=(Order(root), Jvm.of(spark), str(point)), daemon=True
    )
    with _import_path():
        process.start()
    try:
        await_file(root / "stopped", process)
        time.sleep(0.2)
        yield
        os.kill(process.pid or 0, signal.SIGCONT)
        process.join(180)
        assert process.exitcode == 0
    finally:
        process.kill()


def load_and_stop_at(order: Order, jvm: Jvm, point: str) -> None:
    log = os.open(order.root / "worker.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)

    def stop() -> None:
        (order.root / "stopped").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.3)  # this thread may run on for a moment

    hook = At(Point.parse(point), stop)
    with watched_spark(hook):
        ended = _load(order, jvm, hook)
    (order.root / "woken.json").write_text(json.dumps(ended.failures))
    os._exit(0)


def await_file(path: Path, process: Any) -> None:
    deadline = time.monotonic() + 180
    while not path.exists():
        assert process.is_alive() and time.monotonic() < deadline, "the worker did not get there"
        time.sleep(0.05)


def failures_of_the_woken(root: Path) -> list[str]:
    return [text.split()[0] for text in json.loads((root / "woken.json").read_text())]


@pytest.mark.parametrize("kind", ["merge"])
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_lost_record_never_lets_an_old_file_overwrite_a_newer_one(
    destination: str, kind: str, tmp_path: Path, sessions: Sessions, postgres: Callable[[], str]
) -> None:
    """File 1 is applied and its record lost; file 2 is applied by another; file 1 is claimed again."""
    scenario = Scenario.build(tmp_path, destination, (kind,), postgres=postgres(), file_count=1)
    loads = Loads(scenario, sessions)
    lost = At(Point("ledger.commit_batch", BEFORE), raising(lambda: LedgerError("injected")))
    assert codes(loads.run(lost)) == ["TM600"]
    scenario.drop(kind)
    report = loads.run()
    assert (len(report.recovered), len(report.receipts)) == (1, 1)
    loads.finish()
    assert scenario.differences() == []
    assert {row["id"]: row["value"] for row in scenario.rows(kind)} == {0: 0, 1: 1, 2: 1, 3: -1}
