"""Runs are listed, paged and judged: who still works, who died, of whom nothing is known."""

from __future__ import annotations

from datetime import datetime

import pytest

from tallymark.errors import LedgerError
from tallymark.ledger import Ledger
from tallymark.model.report import Outcome, RunRecord, RunState
from unit.ledger.ledger_setup import PIPELINE, Clock, Worker, file

HERE = "this-machine"
LIVING = 1  # the only process that lives here


def is_alive(host: str, pid: int, since: datetime) -> bool | None:
    return pid == LIVING if host == HERE else None


def start(ledger: Ledger, *pipelines: str, host: str = HERE, pid: int = LIVING) -> str:
    return ledger.start_run("shop", "run", host=host, pid=pid, pipelines=pipelines)


def ids(runs: list[RunRecord]) -> list[str]:
    return [run.run_id for run in runs]


def test_a_run_from_start_to_end(ledger: Ledger, clock: Clock) -> None:
    run_id = start(ledger, "silver.orders", "gold.revenue")
    running = ledger.run_record(run_id, is_alive=is_alive)
    assert (running.state, running.started_at, running.finished_at) == (RunState.RUNNING, clock.now, None)
    assert running.outcomes == {"silver.orders": None, "gold.revenue": None}
    clock.forward(5)
    outcomes = {"silver.orders": Outcome.LOADED, "gold.revenue": Outcome.CANCELLED}
    ledger.finish_run(run_id, RunState.CANCELLED, outcomes)
    ended = ledger.run_record(run_id, is_alive=is_alive)
    assert (ended.state, ended.finished_at, ended.outcomes) == (RunState.CANCELLED, clock.now, outcomes)
    assert (ended.project, ended.command, ended.host, ended.pid) == ("shop", "run", HERE, LIVING)


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.ABANDONED, RunState.UNKNOWN])
def test_a_run_does_not_end_as(ledger: Ledger, state: RunState) -> None:
    run_id = start(ledger)
    with pytest.raises(ValueError, match=state):
        ledger.finish_run(run_id, state, {})


def test_pages_have_every_run_once_newest_first(ledger: Ledger, clock: Clock) -> None:
    """Some start at the same moment."""
    started = []
    for number in range(7):
        clock.forward(number % 2)
        started.append((clock.now, start(ledger)))
    pages: list[list[str]] = [ids(ledger.runs(is_alive=is_alive, limit=3))]
    while pages[-1]:
        pages.append(ids(ledger.runs(is_alive=is_alive, limit=3, before=pages[-1][-1])))
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    listed = [run_id for page in pages for run_id in page]
    assert listed == [run_id for _, run_id in sorted(started, reverse=True)]


def test_the_runs_of_a_pipeline(worker: Worker, clock: Clock) -> None:
    """Those that named it, and those of earlier versions, which did not, by their batches."""
    worker.load(file("a.csv"))
    clock.forward(1)
    named = start(worker.ledger, PIPELINE, 'odd "name"')
    clock.forward(1)
    start(worker.ledger, f"{PIPELINE}.lines", PIPELINE.upper())
    found = worker.ledger.runs(is_alive=is_alive, pipeline=PIPELINE)
    assert ids(found) == [named, worker.run_id]
    assert ids(worker.ledger.runs(is_alive=is_alive, pipeline='odd "name"')) == [named]


def test_the_state_of_a_run_that_has_not_ended(ledger: Ledger, clock: Clock) -> None:
    states = {
        start(ledger): RunState.RUNNING,
        start(ledger, pid=2): RunState.ABANDONED,
        start(ledger, host="far", pid=3): RunState.RUNNING,  # it renews its lease
        start(ledger, host="far", pid=4): RunState.ABANDONED,  # it does not
        start(ledger, host="far", pid=5): RunState.UNKNOWN,
    }
    ledger.acquire_lease("table of 3", "far:3:abc", 120)
    ledger.acquire_lease("table of 4", "far:4:abc", 10)
    clock.forward(60)
    states |= {start(ledger, host="far", pid=4): RunState.UNKNOWN}  # that lease was not of this run
    found = ledger.runs(is_alive=is_alive)
    assert {run.run_id: run.state for run in found} == states
    for state in set(states.values()):
        asked = ledger.runs(is_alive=is_alive, state=state)
        assert set(ids(asked)) == {run_id for run_id, judged in states.items() if judged is state}
        assert ids(ledger.runs(is_alive=is_alive, state=state, limit=1)) == ids(asked)[:1]
    assert ledger.runs(is_alive=is_alive, state=RunState.FAILED) == []


def test_a_run_has_the_batches_that_it_tried_last(worker: Worker) -> None:
    loaded = worker.load(file("a.csv"))
    failed = worker.fail(file("b.csv"))
    found = worker.ledger.run_record(worker.run_id, is_alive=is_alive)
    assert [batch.batch_id for batch in found.batches] == [loaded.id, failed.id]
    assert [batch.receipt is not None for batch in found.batches] == [True, False]
    worker.register(file("c.csv"))
    left_open = worker.open(file("c.csv"))
    later = start(worker.ledger, PIPELINE)
    worker.ledger.retry_batch(worker.lease, left_open.id, later)
    assert [b.batch_id for b in worker.ledger.run_record(later, is_alive=is_alive).batches] == [left_open.id]


def test_an_unknown_run(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="run nobody is not in the ledger"):
        ledger.run_record("nobody", is_alive=is_alive)
    with pytest.raises(LedgerError, match="run nobody is not in the ledger"):
        ledger.runs(is_alive=is_alive, before="nobody")
    assert ledger.runs(is_alive=is_alive) == []
