"""Power cuts and mixed backups: the log of a table, the copies of its markers and the ledger go back, each on
its own. What the log does not confirm is not applied: it waits again, and the report says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from model.model_world import STATE, World
from tallymark.flow.recover import recover_pipeline
from tallymark.flow.run import run_pipeline
from tallymark.model.report import Outcome


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def loaded(world: World, files: int) -> None:
    for _ in range(files):
        world.land()
        world.load(STATE)


def applied(world: World) -> list[int]:
    return [row.number for row in world.delta.rows]


@pytest.mark.parametrize("work", [run_pipeline, recover_pipeline])
def test_a_commit_that_only_copies_and_ledger_remember_waits_again(world: World, work: object) -> None:
    loaded(world, 3)
    world.cut_power(log=1)
    assert applied(world) == [1, 2]
    report = world.load(STATE, recover_pipeline if work is recover_pipeline else run_pipeline)
    assert len(report.undone) == 1
    world.load(STATE)
    assert applied(world) == [1, 2, 3]
    assert world.load(STATE).outcome is Outcome.NOTHING_NEW
    world.recover_and_run_to_the_end()


@pytest.mark.parametrize("log", range(3))
@pytest.mark.parametrize("copies", range(3))
@pytest.mark.parametrize("ledger", [0, 5, 15])
def test_every_part_goes_back_on_its_own(world: World, log: int, copies: int, ledger: int) -> None:
    loaded(world, 3)
    world.cut_power(log=log, copies=copies, ledger=ledger)
    world.land()
    world.load(STATE)
    world.recover_and_run_to_the_end()
    assert applied(world) == [1, 2, 3, 4]


@pytest.mark.parametrize("log", [1, 2])
def test_the_numbers_of_lost_commits_are_used_again(world: World, log: int) -> None:
    """The copies have rows of the lost commits and of those that took their versions."""
    loaded(world, 3)
    world.cut_power(log=log)
    loaded(world, 1)
    world.lose_ledger()
    world.load(STATE)
    world.recover_and_run_to_the_end()
    assert applied(world) == [1, 2, 3, 4]


def test_power_fails_again(world: World) -> None:
    loaded(world, 2)
    world.cut_power(log=1)
    loaded(world, 2)
    world.cut_power(log=2, copies=1)
    loaded(world, 1)
    world.recover_and_run_to_the_end()
    assert applied(world) == [1, 2, 3, 4, 5]


def test_lost_copies_stay_lost_after_the_log_is_cleaned_up(world: World) -> None:
    """File 2 is lost with its commit; its version is used by file 3; then the log forgets both, and nobody else knows."""
    loaded(world, 2)
    world.vanish(2)
    world.cut_power(log=1)
    loaded(world, 2)
    world.delta.clean_up_log()
    world.lose_ledger()
    world.land(copy_of=2)
    world.load(STATE)
    assert applied(world) == [1, 3, 4, 2]
    world.recover_and_run_to_the_end()
