"""Schedules that everybody who loads data should know, step by step on the real flow, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from model.gated_worker import Order
from model.model_world import LOG, STATE, WHOLE, Broken, World
from tallymark.flow.bad_rows import judge
from tallymark.flow.recover import recover_pipeline, replay_pipeline
from tallymark.model.report import Outcome, Step


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def applied(world: World, table: str = STATE) -> list[int]:
    return [row.number for row in world.tables[table].rows]


def counting(world: World, table: str = STATE) -> list[str]:
    """The bad rows that count, by what the newest ledger knows."""
    kept = world.quarantines[table]
    shown = judge(world.ledger, table, {row.attempt for row in kept}).shown
    return sorted(row.word for row in kept if row.attempt in shown)


def test_the_steps_of_an_undisturbed_load(world: World) -> None:
    """The workers of the model are the flow itself, so this is its order of steps."""
    world.land()
    worker = world.start(STATE)
    worker.finish()
    steps = ["register", "acquire_lease", "open_batches", "markers", "create_batch", "shape"]
    steps += ["quarantine", "renew_lease", "commit", "commit_batch", "settle", "release_lease"]
    passed = iter(worker.passed)
    assert [step for step in steps if step in passed] == steps
    assert worker.passed[worker.passed.index("commit") - 1] == "renew_lease"
    assert worker.passed[worker.passed.index("commit") + 1] == "commit_batch"
    world.recover_and_run_to_the_end()
    assert (applied(world), applied(world, LOG)) == ([1], [1])


def test_the_lost_update(world: World) -> None:
    """File 1 is applied and its record lost, file 2 is applied, file 1 is claimed again."""
    world.land()
    first = world.start(STATE)
    first.run_until("commit_batch")
    first.crash()
    world.land()
    world.pass_time()
    report = world.load(STATE)
    assert (len(report.recovered), len(report.receipts)) == (1, 1)
    assert world.tables[STATE].values == {"k": 2}
    assert world.load(STATE).outcome is Outcome.NOTHING_NEW
    world.recover_and_run_to_the_end()


def zombie(world: World) -> None:
    """A worker sleeps right before its commit, past its lease; its successor loads that file and the next."""
    world.land()
    sleeper = world.start(STATE)
    sleeper.run_until("commit")
    world.land()
    world.pass_time()
    assert world.load(STATE).outcome is Outcome.LOADED
    assert world.tables[STATE].values == {"k": 2}
    report = sleeper.finish()
    assert report is not None and report.outcome is Outcome.FAILED
    assert report.failures[0].code == "TM503"
    world.check()


def test_the_zombie_is_refused(world: World) -> None:
    world.tables[STATE].sees_moves = False  # so that it is the fence that refuses it
    zombie(world)
    assert world.tables[STATE].values == {"k": 2}
    world.recover_and_run_to_the_end()


def test_without_the_fence_the_zombie_brings_back_the_old_value(world: World) -> None:
    table = world.tables[STATE]
    table.sees_moves = table.refuses_late = False
    with pytest.raises(AssertionError):
        zombie(world)
    assert (applied(world), table.values) == ([1, 2, 1], {"k": 1})
    with pytest.raises(Broken, match="applied twice"):
        world.check()


def test_a_zombie_that_sees_the_table_moved_plans_again_and_finds_its_lease_lost(world: World) -> None:
    world.tables[STATE].refuses_late = False
    world.land()
    sleeper = world.start(STATE)
    sleeper.run_until("commit")
    world.pass_time()
    world.load(STATE)
    report = sleeper.finish()
    assert report is not None and [failure.code for failure in report.failures] == ["TM602"]
    world.recover_and_run_to_the_end()
    assert applied(world) == [1]


def subtle_zombie(world: World, table: str) -> None:
    """The successor's retry of batch N fails and is released, its file is batched again as N + 1; then the
    zombie commits N late, and the successor N + 1."""
    world.land()
    sleeper = world.start(table)
    sleeper.run_until("commit")
    world.pass_time()
    failing = world.start(table)
    failing.run_until("commit")
    failing.step(Order.REFUSE)
    failing.finish()
    successor = world.start(table)
    successor.run_until("commit")
    sleeper.finish()
    successor.finish()


@pytest.mark.parametrize("table", [STATE, LOG])
def test_the_subtle_zombie(world: World, table: str) -> None:
    subtle_zombie(world, table)
    assert applied(world, table) == [1]
    assert [commit.marker.sequence for commit in world.tables[table].held] == [1]
    world.recover_and_run_to_the_end()


def test_without_the_fence_the_subtle_zombie_loads_twice(world: World) -> None:
    world.tables[LOG].refuses_late = False
    subtle_zombie(world, LOG)
    assert applied(world, LOG) == [1, 1]
    with pytest.raises(Broken, match="applied twice"):
        world.check()


def test_a_lost_answer_is_settled_by_the_marker(world: World) -> None:
    world.land()
    worker = world.start(STATE)
    worker.run_until("commit")
    worker.step(Order.LOSE_ANSWER)
    worker.finish()
    world.land()
    report = world.load(STATE)
    assert (len(report.recovered), applied(world)) == (1, [1, 2])
    world.recover_and_run_to_the_end()


def test_the_record_of_a_commit_is_written_and_its_answer_lost(world: World) -> None:
    world.land()
    worker = world.start(STATE)
    worker.run_until("commit_batch")
    worker.step(Order.LOSE_ANSWER)
    worker.finish()
    assert world.load(STATE).outcome is Outcome.NOTHING_NEW
    world.recover_and_run_to_the_end()


def test_a_worker_with_a_lost_ledger_and_one_with_a_new_one(world: World) -> None:
    world.land()
    old = world.start(STATE)
    old.run_until("commit")
    world.lose_ledger()
    new = world.start(STATE)
    new.run_until("commit")
    old.finish()
    new.finish()
    assert applied(world) == [1]
    world.recover_and_run_to_the_end()


def test_what_a_restore_has_undone_is_loaded_again(world: World) -> None:
    for _ in range(3):
        world.land()
        world.load(STATE)
    world.restore(STATE, kept=1)
    world.load(STATE, recover_pipeline)
    world.load(STATE)
    assert applied(world) == [1, 2, 3]
    world.recover_and_run_to_the_end()


def test_what_a_restore_has_undone_goes_before_an_open_batch(world: World) -> None:
    for _ in range(2):
        world.land()
        world.load(STATE)
    world.land()
    dying = world.start(STATE)
    dying.run_until("commit")
    dying.crash()
    world.pass_time()
    world.restore(STATE, kept=1)
    world.load(STATE)
    world.recover_and_run_to_the_end()
    assert applied(world) == [1, 2, 3]


@pytest.mark.parametrize("gate", ["undo_batches", "fail_batch", "known_stats"])
def test_dying_while_a_restore_is_settled(world: World, gate: str) -> None:
    for _ in range(2):
        world.land()
        world.load(STATE)
    world.land()
    for_ever_open = world.start(STATE)
    for_ever_open.run_until("commit")
    for_ever_open.crash()
    world.pass_time()
    world.restore(STATE, kept=1)
    settling = world.start(STATE)
    settling.run_until("acquire_lease")
    settling.run_until(gate)
    settling.step()
    settling.crash()
    world.pass_time()
    world.load(STATE)
    world.recover_and_run_to_the_end()
    assert applied(world) == [1, 2, 3]


@pytest.mark.parametrize("table", [STATE, LOG])
def test_a_restore_while_a_worker_is_at_its_commit(world: World, table: str) -> None:
    for _ in range(2):
        world.land()
        world.load(table)
    world.land()
    worker = world.start(table)
    worker.run_until("commit")
    world.restore(table, kept=1)
    worker.finish()
    world.recover_and_run_to_the_end()
    assert sorted(applied(world, table)) == [1, 2, 3]


def test_an_old_listing_hides_no_file_from_those_who_know_more(world: World) -> None:
    """A worker lists file 1 and sleeps; files 2 and 3 come and are registered. When it wakes, it has not seen
    them vanish: it has never seen them."""
    world.land()
    sleeper = world.start(STATE)
    sleeper.run_until("forget_vanished")
    world.land()
    world.start(STATE).run_until("forget_vanished")
    other = world.start(STATE)
    world.land()
    other.run_until("register")
    sleeper.step()
    other.finish()
    world.recover_and_run_to_the_end()


def cancelled(world: World, gate: str) -> tuple[Outcome, int]:
    """Three files, so two batches; cancelled while the first one waits at the gate."""
    for _ in range(3):
        world.land()
    worker = world.start(STATE)
    worker.run_until(gate)
    worker.cancellation.cancel()
    report = worker.finish()
    assert report is not None
    assert [failure.code for failure in report.failures] == ["TM800"]
    return report.outcome, len(report.receipts)


@pytest.mark.parametrize("gate", ["register", "acquire_lease", "markers", "create_batch", "shape"])
def test_a_run_that_is_cancelled_before_its_commit_writes_nothing(world: World, gate: str) -> None:
    assert cancelled(world, gate) == (Outcome.CANCELLED, 0)
    assert applied(world) == []
    assert world.ledger.open_batches("memory:state") == []
    waiting = world.ledger.waiting_contents(STATE)
    assert [(str(entry.state), entry.attempts) for entry in waiting] == [("PENDING", 0)] * 3
    assert len(world.load(STATE).receipts) == 2
    world.recover_and_run_to_the_end()


@pytest.mark.parametrize("gate", ["renew_lease", "commit", "commit_batch"])
def test_a_commit_that_has_begun_is_recorded_before_the_run_is_cancelled(world: World, gate: str) -> None:
    assert cancelled(world, gate) == (Outcome.CANCELLED, 1)
    assert applied(world) == [1, 2]
    assert world.ledger.open_batches("memory:state") == []
    assert [receipt.total for receipt in world.load(STATE).receipts] == [1]
    world.recover_and_run_to_the_end()


def test_a_retry_that_is_cancelled_is_released(world: World) -> None:
    world.land()
    dying = world.start(STATE)
    dying.run_until("commit")
    dying.crash()
    world.pass_time()
    worker = world.start(STATE)
    worker.run_until("shape")
    worker.cancellation.cancel()
    report = worker.finish()
    assert report is not None and report.outcome is Outcome.CANCELLED
    assert world.ledger.open_batches("memory:state") == []
    world.recover_and_run_to_the_end()
    assert applied(world) == [1]


def test_events_name_their_run_and_batch(world: World) -> None:
    for _ in range(3):
        world.land()
    report = world.load(STATE)
    batches = [receipt.batch_id for receipt in report.receipts]
    for step in (Step.APPLY, Step.RECORD, Step.REPORT):
        assert [event.batch_id for event in world.events if event.step is step] == batches
    assert {event.batch_id for event in world.events if event.step in (Step.DISCOVER, Step.CLAIM)} == {""}
    assert {event.pipeline for event in world.events} == {STATE}
    assert len({event.run_id for event in world.events if event.step is not Step.DISCOVER}) == 1


@pytest.mark.parametrize("gate", ["renew_lease", "commit"])
@pytest.mark.parametrize("order", [Order.REFUSE, Order.CRASH])
def test_bad_rows_of_a_batch_that_failed_do_not_count(world: World, gate: str, order: Order) -> None:
    """They were written before its end. Its file is batched again, with another one."""
    world.land(bad=1)
    worker = world.start(STATE)
    worker.run_until(gate)
    assert len(world.quarantines[STATE]) == 1
    worker.step(order)
    worker.finish()
    assert counting(world) == []
    world.pass_time()
    world.land(bad=1)
    for _ in range(2):  # a batch that was left open is tried again by itself
        world.load(STATE)
    assert counting(world) == ["bad-1-0", "bad-2-0"]
    assert len(world.quarantines[STATE]) == 3
    world.recover_and_run_to_the_end()
    world.replay_and_expect_nothing_left()


def test_bad_rows_of_a_commit_whose_record_was_lost_count_once_it_is_settled(world: World) -> None:
    world.land(bad=2)
    worker = world.start(STATE)
    worker.run_until("commit_batch")
    worker.crash()
    assert counting(world) == []
    world.pass_time()
    world.load(STATE, recover_pipeline)
    assert counting(world) == ["bad-1-0", "bad-1-1"]


def test_bad_rows_of_a_late_worker_do_not_count(world: World) -> None:
    """It tried the same batch, which its successor has committed; and it finds other rows bad."""
    world.land(bad=2)
    sleeper = world.start(STATE)
    sleeper.run_until("quarantine")
    world.pass_time()
    world.load(STATE)
    assert counting(world) == ["bad-1-0", "bad-1-1"]
    sleeper.finish()
    assert len(world.quarantines[STATE]) == 4
    assert counting(world) == ["bad-1-0", "bad-1-1"]


def test_bad_rows_follow_a_restored_table(world: World) -> None:
    """A replay that the table lost can be made again; a load that it lost takes its bad rows along."""
    world.land(bad=1)
    world.load(STATE)
    world.load(STATE, replay_pipeline)
    assert counting(world) == [] and len(world.tables[STATE].held) == 2
    world.load(STATE, replay_pipeline)
    assert len(world.tables[STATE].held) == 2
    world.restore(STATE, kept=1)
    world.load(STATE, recover_pipeline)
    assert counting(world) == ["bad-1-0"]
    world.load(STATE, replay_pipeline)
    assert counting(world) == [] and len(world.tables[STATE].held) == 2
    world.restore(STATE, kept=0)
    world.load(STATE, recover_pipeline)
    assert counting(world) == []
    world.load(STATE)
    assert counting(world) == ["bad-1-0"]


def test_replayed_rows_that_were_removed_do_not_count_for_a_new_ledger(world: World) -> None:
    """A replay removes what has not counted for a month."""
    world.land(bad=1)
    world.load(STATE)
    world.load(STATE, replay_pipeline)
    world.pass_time(40 * 86_400)
    world.load(STATE, replay_pipeline)
    assert world.quarantines[STATE] == []
    world.lose_ledger()
    world.load(STATE)
    world.load(STATE, replay_pipeline)
    assert counting(world) == [] and len(world.tables[STATE].held) == 2


@pytest.mark.parametrize("gate", ["commit", "commit_batch"])
def test_dying_in_a_replay(world: World, gate: str) -> None:
    world.land(bad=1)
    world.load(STATE)
    dying = world.start(STATE, replay_pipeline)
    dying.run_until(gate)
    dying.crash()
    world.pass_time()
    world.load(STATE, replay_pipeline)
    assert counting(world) == [] and len(world.tables[STATE].held) == 2


def test_bad_rows_of_a_lost_ledger_count_again_after_recovery(world: World) -> None:
    """Also where the file is gone; and those that were replayed are known to be."""
    for _ in range(2):
        world.land(bad=1)
        world.load(STATE)
    first = world.tables[STATE].held[0].marker.batch_id
    world.load(STATE, lambda job: replay_pipeline(job, first))
    world.vanish(2)
    world.lose_ledger()
    assert counting(world) == []
    world.load(STATE, recover_pipeline)
    assert counting(world) == ["bad-2-0"]
    world.load(STATE, replay_pipeline)
    assert counting(world) == [] and len(world.tables[STATE].held) == 4


def states(world: World, *copies: int) -> None:
    """Each number names the file whose content lands; its own number, a new one."""
    for number, copy_of in enumerate(copies, len(world.landed) + 1):
        world.land("w", copy_of=None if copy_of == number else copy_of)


def test_a_state_that_returns_is_applied(world: World) -> None:
    for copy_of in (1, 2, 1, 1, 2, 1):
        states(world, copy_of)
        world.load(WHOLE)
    assert applied(world, WHOLE) == [1, 2, 1, 2, 1]
    world.recover_and_run_to_the_end()


def test_states_that_return_in_one_listing(world: World) -> None:
    states(world, 1, 2, 1, 1, 2)
    assert [receipt.total for receipt in world.load(WHOLE).receipts] == [1, 1, 1, 1]
    assert applied(world, WHOLE) == [1, 2, 1, 2]
    world.recover_and_run_to_the_end()


@pytest.mark.parametrize("gate", ["register", "create_batch", "commit", "commit_batch", "settle"])
@pytest.mark.parametrize("order", [Order.CRASH, Order.LOSE_ANSWER])
def test_dying_with_a_state_that_returns(world: World, gate: str, order: Order) -> None:
    states(world, 1, 2)
    world.load(WHOLE)
    states(world, 1)
    worker = world.start(WHOLE)
    worker.run_until(gate)
    worker.step(order)
    worker.finish()
    world.pass_time()
    world.load(WHOLE)
    assert applied(world, WHOLE) == [1, 2, 1]
    world.recover_and_run_to_the_end()


def test_a_lost_ledger_does_not_make_states_return(world: World) -> None:
    states(world, 1, 2, 1, 4)
    world.load(WHOLE)
    world.lose_ledger()
    assert world.load(WHOLE).outcome is Outcome.NOTHING_NEW
    assert applied(world, WHOLE) == [1, 2, 1, 4]
    states(world, 1)
    world.load(WHOLE)
    assert applied(world, WHOLE) == [1, 2, 1, 4, 1]
    world.recover_and_run_to_the_end()


def test_a_lost_ledger_and_files_that_are_gone(world: World) -> None:
    """What is left of the deliveries has the numbers of earlier ones, so none is applied again."""
    states(world, 1, 2, 1, 2, 5)
    world.load(WHOLE)
    for gone in (1, 2, 3):
        world.vanish(gone)
        world.lose_ledger()
        world.load(WHOLE)
        assert applied(world, WHOLE) == [1, 2, 1, 2, 5]


def test_a_zombie_with_a_state_that_returned(world: World) -> None:
    states(world, 1, 2)
    world.load(WHOLE)
    states(world, 1)
    sleeper = world.start(WHOLE)
    sleeper.run_until("commit")
    world.pass_time()
    world.load(WHOLE)
    states(world, 4)
    world.load(WHOLE)
    sleeper.finish()
    assert applied(world, WHOLE) == [1, 2, 1, 4]
    world.recover_and_run_to_the_end()


def test_a_restore_undoes_a_state_that_returned(world: World) -> None:
    states(world, 1, 2, 1)
    world.load(WHOLE)
    world.restore(WHOLE, kept=1)
    world.load(WHOLE)
    assert applied(world, WHOLE) == [1, 2, 1]
    world.recover_and_run_to_the_end()


def test_a_renamed_file_does_not_return(world: World) -> None:
    states(world, 1, 2)
    world.load(WHOLE)
    states(world, 1)  # its time is that of file 1, as all times here
    world.vanish(1)
    assert world.load(WHOLE).outcome is Outcome.NOTHING_NEW
    assert applied(world, WHOLE) == [1, 2]
