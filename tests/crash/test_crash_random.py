"""Processes that die at any time: in the middle of a statement, of a file, of starting."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.scenarios import DESTINATIONS, KINDS, Scenario
from crash.tally import Tally
from crash.worker import SEED, Order, Workshop

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TALLYMARK_KILLS", "0")) or 20
TRIES = 3
WHOLE_KILLS = int(os.environ.get("TALLYMARK_JVM_KILLS", "0")) or 8

Postgres = Callable[[], str]


def project(root: Path, destination: str, kinds: tuple[str, ...], postgres: Postgres) -> Scenario:
    url = postgres() if destination == "postgres" else ""
    return Scenario.build(root, destination, kinds, postgres=url, file_count=2)


def kill_at_random(
    workshop: Workshop, scenario: Scenario, tally: Tally, kills: int, chance: random.Random
) -> None:
    """Within the time that the last run took that was let live."""
    started = time.monotonic()
    assert workshop.run(Order(scenario.root, watched=False)).done
    longest = time.monotonic() - started
    while tally.total < kills:
        for kind in scenario.kinds:
            while scenario.waiting(kind) < 2:
                scenario.drop(kind)
        order, started = Order(scenario.root, watched=False, parallel=chance.choice((1, 2))), time.monotonic()
        if workshop.run_killing_after(order, chance.uniform(0.1, longest)).killed:
            tally.add(scenario.destination, "at a random time")
        else:
            longest = time.monotonic() - started
    drop_one_more(scenario)
    ended = workshop.finish(scenario.root)
    assert ended.done, ended
    assert scenario.differences() == []


def drop_one_more(scenario: Scenario) -> None:
    """Who died after its last record, but before it gave back its lease, leaves nothing to do, so that nobody
    would take the lease over."""
    for kind in scenario.kinds:
        scenario.drop(kind)


def test_some_random_kills(workshop: Workshop, tally: Tally, tmp_path: Path, postgres: Postgres) -> None:
    print(f"repeat with TALLYMARK_SEED={SEED}")
    chance = random.Random(f"{SEED} random")
    destination, kind = chance.choice(DESTINATIONS), chance.choice(sorted(KINDS))
    kill_at_random(workshop, project(tmp_path / "p", destination, (kind,), postgres), tally, 3, chance)


@pytest.mark.big
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_random_kills(
    destination: str, workshop: Workshop, tally: Tally, tmp_path: Path, postgres: Postgres
) -> None:
    """Several pipelines side by side in each process."""
    print(f"repeat with TALLYMARK_SEED={SEED}")
    scenario = project(tmp_path / "p", destination, ("append", "merge", "scd2"), postgres)
    kill_at_random(workshop, scenario, tally, KILLS, random.Random(f"{SEED} random {destination}"))


def test_a_first_load_that_dies_between_its_rows_and_its_log(
    workshop: Workshop, tally: Tally, tmp_path: Path, postgres: Postgres
) -> None:
    """Delta writes the rows first. What they leave in the folder must not stop the next run."""
    for attempt in range(TRIES):
        scenario = project(tmp_path / str(attempt), "delta", ("append",), postgres)
        table = scenario.root / "warehouse/silver/append"
        process = _command(scenario.root)
        while process.poll() is None and not any(file.stat().st_size for file in table.glob("*.parquet")):
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not any(table.glob("_delta_log/*.json")):
            tally.add("delta", "between rows and log")
            break
    assert tally.total == 1
    drop_one_more(scenario)
    ended = workshop.finish(scenario.root)
    assert ended.done, ended
    assert scenario.differences() == []


@pytest.mark.big
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("destination", ["delta", "sqlite"])
def test_kills_of_everything(destination: str, tally: Tally, tmp_path: Path, postgres: Postgres) -> None:
    """The command line with a Spark of its own, killed with its JVM."""
    print(f"repeat with TALLYMARK_SEED={SEED}")
    chance = random.Random(f"{SEED} everything {destination}")
    scenario = project(tmp_path / "p", destination, ("append", "merge"), postgres)
    longest = 15.0
    while tally.total < WHOLE_KILLS:
        for kind in scenario.kinds:
            while scenario.waiting(kind) < 4:
                scenario.drop(kind)
        process, started = _command(scenario.root), time.monotonic()
        try:
            process.wait(chance.uniform(2, longest * 1.2))
            longest = time.monotonic() - started
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            tally.add(destination, "whole process group")
        process.wait()
    drop_one_more(scenario)
    for _ in range(3):
        if _command(scenario.root).wait() == 0:
            break
    assert scenario.differences() == []


def _command(root: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tallymark.cli.main", "run", "--project", str(root)]
    with (root / "command.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
