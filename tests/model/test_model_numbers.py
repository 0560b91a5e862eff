"""Sequences, fences and attempts: what a new ledger, an old one and a restored table make of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from model.gated_worker import Order, Worker
from model.model_world import LOG, STATE, World
from tallymark.model.report import Outcome, PipelineReport


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def loaded(world: World, table: str, files: int) -> None:
    for _ in range(files):
        world.land()
        world.load(table)


def applied(world: World, table: str = STATE) -> list[int]:
    return [row.number for row in world.tables[table].rows]


def dies_at(world: World, table: str, gate: str, order: Order = Order.CRASH) -> Worker:
    worker = world.start(table)
    worker.run_until(gate)
    worker.step(order)
    worker.finish()
    world.pass_time()
    return worker


def finished(worker: Worker) -> PipelineReport:
    report = worker.finish()
    assert report is not None
    assert report.failures == ()
    return report


@pytest.mark.parametrize("table", [STATE, LOG])
@pytest.mark.parametrize("files", [1, 2])
def test_a_new_ledger_goes_on_with_the_fences_of_the_table(world: World, table: str, files: int) -> None:
    """Its own first fence is lower than, or equal to, the last one of the table."""
    loaded(world, table, files)
    world.lose_ledger()
    loaded(world, table, 1)
    fences = [commit.marker.fence for commit in world.tables[table].held]
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("table", [STATE, LOG])
def test_a_new_ledger_goes_on_with_the_sequences_of_the_table(world: World, table: str) -> None:
    """It knows none of them: the files that they brought are gone."""
    loaded(world, table, 2)
    for number in (1, 2):
        world.vanish(number)
    world.lose_ledger()
    world.land()
    assert world.load(table).outcome is Outcome.LOADED
    assert [commit.marker.sequence for commit in world.tables[table].held] == [1, 2, 3]


def test_a_sequence_that_a_restore_left_used_is_not_tried_again(world: World) -> None:
    """File 2 is applied and its record lost, then the commit is undone: Delta would drop its number."""
    loaded(world, STATE, 1)
    world.land()
    dies_at(world, STATE, "commit_batch")
    world.restore(STATE, kept=1)
    assert world.load(STATE).outcome is Outcome.LOADED
    assert [commit.marker.sequence for commit in world.delta.held] == [1, 3]
    assert applied(world) == [1, 2]


def test_a_commit_that_delta_drops_is_none(world: World) -> None:
    """Another ledger has used its number for another content, between its last look and its write."""
    world.delta.sees_moves = False
    world.land()
    late = world.start(STATE)
    late.run_until("commit")
    world.vanish(1)
    world.lose_ledger()
    loaded(world, STATE, 1)
    report = late.finish()
    assert report is not None and [failure.code for failure in report.failures] == ["TM503"]
    assert applied(world) == [2]
    assert world.ledgers[0].batch_of_hashes("memory:state", {file.content for file in world.landed}) == {}


def test_a_part_of_an_open_batch_was_applied_under_a_lower_sequence(world: World) -> None:
    """The old ledger has files 3 and 4 in a batch; the new one applies 2 and 3, and dies before 4."""
    loaded(world, LOG, 4)
    world.restore(LOG, kept=2, backup=True)
    dies_at(world, LOG, "commit")
    old = world.start(LOG)
    old.run_until("acquire_lease")
    world.restore(LOG, kept=1, backup=True)
    world.lose_ledger()
    new = world.start(LOG)
    new.run_until("commit")
    new.run_until("commit")
    new.crash()
    assert applied(world, LOG) == [1, 2, 3]
    world.pass_time()
    finished(old)
    assert applied(world, LOG) == [1, 2, 3, 4]
    world.recover_and_run_to_the_end()


@pytest.mark.parametrize("table", [STATE, LOG])
def test_a_batch_that_another_ledger_applied_is_recorded_as_the_others(world: World, table: str) -> None:
    world.land()
    dies_at(world, table, "commit")
    old = world.start(table)
    old.run_until("acquire_lease")
    world.lose_ledger()
    world.load(table)
    finished(old)
    [commit] = world.tables[table].held
    [content] = commit.marker.content_hashes
    for ledger in world.ledgers:
        assert ledger.batch_of_hashes(f"memory:{table}", [content]) == {content: commit.marker.batch_id}


def test_a_content_that_a_restore_brought_back_is_recorded_not_loaded(world: World) -> None:
    """File 2 is loaded, undone and loaded again; then the table goes back to the first of the two."""
    loaded(world, STATE, 2)
    world.delta.restore_to(0)
    world.restored[STATE] += 1
    world.load(STATE)
    world.delta.restore_to(1)
    world.restored[STATE] += 1
    report = world.load(STATE)
    assert (report.outcome, len(report.undone), len(report.recovered)) == (Outcome.NOTHING_NEW, 1, 1)
    assert applied(world) == [1, 2]
    world.recover_and_run_to_the_end()


def test_a_restore_is_remembered_after_the_log_is_cleaned_up(world: World) -> None:
    """File 2 is undone and gone; when it comes again, nobody else knows that it is not in the table."""
    loaded(world, STATE, 2)
    world.vanish(2)
    world.restore(STATE, kept=1)
    loaded(world, STATE, 1)
    world.delta.clean_up_log()
    world.lose_ledger()
    world.land(copy_of=2)
    world.load(STATE)
    assert applied(world) == [1, 3, 2]
    world.recover_and_run_to_the_end()


@pytest.mark.parametrize(
    ("table", "backup"),
    [
        (STATE, False),
        (LOG, True),
        (STATE, True),
    ],
)
def test_a_run_alone_notices_a_restore(world: World, table: str, backup: bool) -> None:
    loaded(world, table, 2)
    world.restore(table, kept=1, backup=backup)
    report = world.load(table)
    assert (len(report.undone), len(report.receipts)) == (1, 1)
    assert applied(world, table) == [1, 2]


def test_what_kills_every_worker_is_given_up(world: World) -> None:
    world.land()
    for _ in range(3):
        dies_at(world, STATE, "commit")
    world.load(STATE)
    given_up = [
        record for record in world.ledger.history(STATE) if record.error and record.error.code == "TM506"
    ]
    assert [record.attempts for record in given_up] == [3]


@pytest.mark.parametrize("table", [STATE, LOG])
def test_a_lost_answer_leaves_the_batch_open_and_ends_the_run(world: World, table: str) -> None:
    """It may still be at work: nothing newer goes before it is settled, and no file is charged an attempt."""
    for _ in range(3):
        world.land()
    worker = dies_at(world, table, "commit", Order.LOSE_ANSWER)
    assert worker.passed.count("commit") == 1
    [batch] = world.ledger.open_batches(f"memory:{table}")
    assert batch.attempt == 1
    assert [(str(e.state), e.attempts) for e in world.ledger.waiting_contents(table)] == [("PENDING", 0)]
    world.recover_and_run_to_the_end()
    assert applied(world, table) == [1, 2, 3]
