"""Once a commit has begun, no error makes it a failure unless it proves one; once it is made, none at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tallymark as tm
from tallymark.checks import split as checks_split
from tallymark.destinations.delta.table import DeltaTable
from tallymark.destinations.sqlite.engine import SqliteSession
from tallymark.errors import TableBusy
from tallymark.flow import load as load_step
from tallymark.model.report import Event, Outcome, Step
from unit.flow.shop import ORDERS, DatabaseShop, Shop, csv


@pytest.fixture
def orders(store: DatabaseShop) -> DatabaseShop:
    store.pipeline("silver.orders", ORDERS)
    store.drop("orders/1.csv", csv("1,new,1"))
    return store


def files_of(shop: Shop) -> dict[str, int]:
    with shop.open() as project:
        return project.status()[0].files


def break_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letting the rows of the batch go fails, as when Spark has lost an executor."""
    split = checks_split.split

    @contextmanager
    def breaking(*given: Any, **named: Any) -> Iterator[Any]:
        try:
            with split(*given, **named) as checked:
                yield checked
        finally:
            raise RuntimeError("unpersist failed")

    monkeypatch.setattr(load_step, "split", breaking)


def test_a_clean_up_that_fails_after_the_commit_is_a_warning(
    orders: DatabaseShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_clean_up(monkeypatch)
    report = orders.load()
    assert (report.outcome, report.counts.inserted) == (Outcome.LOADED, 1)
    assert any("unpersist failed" in warning for warning in report.warnings)
    assert files_of(orders) == {"COMMITTED": 1}
    assert orders.load().outcome is Outcome.NOTHING_NEW


@pytest.mark.parametrize("also_clean_up", [False, True])
def test_an_error_that_proves_nothing_is_settled_by_the_marker(
    orders: DatabaseShop, monkeypatch: pytest.MonkeyPatch, also_clean_up: bool
) -> None:
    commit = SqliteSession.commit

    def answer_lost(session: SqliteSession) -> None:
        commit(session)
        raise RuntimeError("what was that?")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteSession, "commit", answer_lost)
        if also_clean_up:
            break_clean_up(patched)
        report = orders.run()
    assert [failure.code for failure in report.failures] == ["TM504"]
    assert files_of(orders) == {"PROCESSING": 1}
    assert len(orders.load().recovered) == 1
    assert orders.rows() == [(1, "new")]


def test_a_proof_of_failure_stays_one_when_the_clean_up_fails(
    orders: DatabaseShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(session: SqliteSession) -> None:
        raise TableBusy("somebody else is writing")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteSession, "commit", refuse)
        break_clean_up(patched)
        report = orders.run()
    assert [failure.code for failure in report.failures] == ["TM507"]
    assert orders.load().counts.inserted == 1


def test_ctrl_c_during_the_commit_leaves_the_batch_open(
    orders: DatabaseShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(session: SqliteSession) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(SqliteSession, "commit", interrupted)
        break_clean_up(patched)
        orders.run()
    assert files_of(orders) == {"PROCESSING": 1}
    assert orders.load().counts.inserted == 1


def test_a_listener_that_fails_has_no_say(orders: DatabaseShop) -> None:
    def listen(event: Event) -> None:
        if event.step in (Step.READ, Step.APPLY, Step.RECORD):
            raise RuntimeError("the listener is broken")

    with tm.Project(orders.root, spark=orders.spark, on_event=listen) as project:
        [report] = project.run("silver.orders").pipelines
    assert (report.outcome, report.failures) == (Outcome.LOADED, ())


def test_a_delta_commit_that_cannot_be_looked_up_is_unknown(
    lake: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.drop("orders/1.csv", csv("1,new,1"))

    def unreadable(*given: Any) -> None:
        raise OSError("Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "find_commit", unreadable)
        report = lake.run()
    assert [failure.code for failure in report.failures] == ["TM504"]
    assert files_of(lake) == {"PROCESSING": 1}
    assert len(lake.load().recovered) == 1
    assert lake.rows() == [(1, "new")]


@pytest.mark.slow
def test_a_library_call_returns_what_it_committed(lake: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    file = lake.drop("orders/1.csv", csv("1,new,1"))

    def refuse(*given: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "settle", refuse)
        receipt = tm.merge(file, lake.root / "t", unique_key="order_id", spark=lake.spark)
    assert receipt.inserted == 1
    again = tm.merge(file, lake.root / "t", unique_key="order_id", spark=lake.spark)
    assert again.already_applied
