"""The front door of a project as a server uses it: threads, several projects, runs, reload, cancel, events."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tallymark as tm
from tallymark.errors import Cancelled, ConfigError, LedgerError
from tallymark.flow.lease import process_lives
from tallymark.model.report import Event, Outcome, RunRecord, RunState, Step
from unit.flow.shop import ORDERS, DatabaseShop, csv

OTHERS = ORDERS.replace("landing/orders", "landing/others")


@pytest.fixture
def make_shop(tmp_path: Path, spark: SparkSession) -> Callable[[str], DatabaseShop]:
    def make(name: str) -> DatabaseShop:
        (tmp_path / name).mkdir()
        shop = DatabaseShop.at(tmp_path / name, spark)
        shop.pipeline("silver.orders", ORDERS)
        return shop

    return make


@pytest.fixture
def shop(make_shop: Callable[[str], DatabaseShop]) -> DatabaseShop:
    return make_shop("shop")


def test_two_projects_run_side_by_side(
    make_shop: Callable[[str], DatabaseShop], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither events nor ledgers nor rows mix, and nothing is printed."""
    shops = {name: make_shop(name) for name in ("east", "west")}
    events: dict[str, list[Event]] = {name: [] for name in shops}
    for number, (name, shop) in enumerate(shops.items()):
        shop.pipeline(f"{name}.orders", ORDERS)
        (shop.root / "pipelines/silver/orders/config.yaml").unlink()
        (shop.root / "pipelines/silver/orders").rmdir()
        shop.drop("orders/1.csv", csv(*(f"{row},{name},5" for row in range(number + 1))))

    def run(name: str) -> str:
        with tm.Project(shops[name].root, spark=shops[name].spark, on_event=events[name].append) as project:
            report = project.run()
            assert report.ok, report
            project.preview(f"{name}.orders")
            assert [run.run_id for run in project.runs()] == [report.run_id]
            return report.run_id

    with ThreadPoolExecutor(2) as pool:
        run_ids = dict(zip(shops, pool.map(run, shops), strict=True))
    for number, (name, shop) in enumerate(shops.items()):
        assert {event.pipeline for event in events[name]} - {""} == {f"{name}.orders"}
        assert {event.run_id for event in events[name]} - {""} == {run_ids[name]}
        assert shop.rows(f"{name}.orders") == [(row, name) for row in range(number + 1)]
    assert capsys.readouterr().out == ""


def test_threads_that_share_a_project_get_their_own_events(shop: DatabaseShop) -> None:
    shop.pipeline("silver.others", OTHERS)
    shop.drop("orders/1.csv", csv("1,new,5"))
    shop.drop("others/1.csv", csv("2,new,5"))
    everything: list[Event] = []
    names = ["silver.orders", "silver.others"]
    own: dict[str, list[Event]] = {name: [] for name in names}
    with tm.Project(shop.root, spark=shop.spark, on_event=everything.append) as project:
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(lambda name: project.run(name, on_event=own[name].append), names))
        runs = project.runs()
    assert {run.run_id for run in runs} == {report.run_id for report in reports}
    for name, report in zip(names, reports, strict=True):
        assert {event.pipeline for event in own[name]} - {""} == {name}
        assert {event.run_id for event in own[name]} == {report.run_id}
        [batch_id] = {receipt.batch_id for receipt in report.pipelines[0].receipts}
        assert {event.batch_id for event in own[name]} == {"", batch_id}
    assert sorted(map(id, everything)) == sorted(id(event) for name in names for event in own[name])


def test_runs_are_listed_paged_and_asked_for_one_by_one(shop: DatabaseShop) -> None:
    shop.pipeline("silver.others", OTHERS)
    with shop.open() as project:
        assert project.runs() == []
        shop.drop("orders/1.csv", csv("1,new,5"))
        loaded = project.run("silver.orders")
        shop.drop("others/1.csv", "a\nb\n")
        failed = project.run("silver.others")
        recovered = project.recover()
        every = project.runs()
        assert [(run.command, run.state) for run in every] == [
            ("recover", RunState.SUCCEEDED),
            ("run", RunState.FAILED),
            ("run", RunState.SUCCEEDED),
        ]
        assert len(recovered) == 2
        assert project.runs(limit=1, before=every[0].run_id) == [every[1]]
        assert _ids(project.runs(pipeline="silver.orders")) == _ids([every[0], every[2]])
        assert _ids(project.runs(state="FAILED")) == [failed.run_id]
        found = project.run_record(loaded.run_id)
        assert (found.host, found.pid) == (socket.gethostname(), os.getpid())
        assert found.outcomes == {"silver.orders": Outcome.LOADED}
        [batch] = found.batches
        assert batch.receipt is not None
        assert batch.receipt.counts == loaded.pipelines[0].receipts[0].counts
        with pytest.raises(LedgerError, match="run nobody is not in the ledger"):
            project.run_record("nobody")
        with pytest.raises(ConfigError, match=r"there is no pipeline silver\.order"):
            project.runs(pipeline="silver.order")


def _ids(runs: list[RunRecord]) -> list[str]:
    return [run.run_id for run in runs]


def test_a_run_that_ends_by_an_exception_is_not_left_running(shop: DatabaseShop) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    shop.drop("orders/1.csv", csv("1,new,5"))
    with shop.open() as project:
        with pytest.raises(KeyboardInterrupt):
            project.run(on_event=interrupt)
        [run] = project.runs()
        assert (run.state, run.outcomes) == (RunState.FAILED, {"silver.orders": None})


def test_the_process_of_a_run() -> None:
    here, now = socket.gethostname(), datetime.now(UTC)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process_lives(here, os.getpid(), now) is True
    assert process_lives(here, ended.pid, now) is False
    assert process_lives("elsewhere", os.getpid(), now) is None
    # Another process had this number before.
    assert process_lives(here, os.getpid(), now - timedelta(days=400)) is not sys.platform.startswith("linux")


def test_reload_reads_the_configuration_again(shop: DatabaseShop) -> None:
    with shop.open() as project:
        sessions = project._current.sessions
        shop.pipeline("silver.others", OTHERS)
        assert list(project.pipelines) == ["silver.orders"]
        project.reload()
        assert list(project.pipelines) == ["silver.orders", "silver.others"]
        assert project._current.sessions is sessions

        shop.pipeline("silver.others", "merge_stratgy: upsert\n")
        with pytest.raises(ConfigError, match="merge_stratgy"):
            project.reload()
        assert list(project.pipelines) == ["silver.orders", "silver.others"]
        shop.drop("others/1.csv", csv("1,new,5"))
        assert project.run("silver.others").ok


def test_a_reload_changes_ledger_and_spark_of_later_calls_only(shop: DatabaseShop) -> None:
    """The run that is under way ends in the ledger that it started in."""
    settings = shop.root / "tallymark.yaml"
    reached, go_on = threading.Event(), threading.Event()

    def wait(event: Event) -> None:
        if event.step is Step.CLAIM:
            reached.set()
            assert go_on.wait(60)

    shop.drop("orders/1.csv", csv("1,new,5"))
    with shop.open() as project, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(project.run, on_event=wait)
        assert reached.wait(60)
        sessions = project._current.sessions
        settings.write_text(settings.read_text() + "ledger: sqlite:///other.db\nspark: {conf: {a.b: 1}}\n")
        project.reload()
        go_on.set()
        assert under_way.result().ok
        assert project.runs() == []
        assert project._current.sessions is not sessions
        settings.write_text(settings.read_text().partition("ledger:")[0])
        project.reload()
        assert [run.state for run in project.runs()] == [RunState.SUCCEEDED]


def test_a_cancelled_run_stops_before_it_writes(shop: DatabaseShop) -> None:
    """Nothing is charged to the file: the next run loads it."""
    cancellation = tm.Cancellation()

    def cancel(event: Event) -> None:
        if event.step is Step.READ:
            cancellation.cancel()

    shop.drop("orders/1.csv", csv("1,new,5"))
    with shop.open() as project:
        report = project.run(on_event=cancel, cancellation=cancellation)
        assert (report.ok, report.pipelines[0].outcome) == (False, Outcome.CANCELLED)
        assert not shop.has("silver.orders")
        assert project.run_record(report.run_id).state is RunState.CANCELLED
        assert _ids(project.runs(state=RunState.CANCELLED)) == [report.run_id]
        with pytest.raises(Cancelled):
            project.plan(cancellation=cancellation)
        [recovered] = project.recover(cancellation=cancellation)
        assert recovered.outcome is Outcome.CANCELLED
        assert project.status()[0].failed_files == ()
        assert project.run().ok
        assert shop.rows() == [(1, "new")]
