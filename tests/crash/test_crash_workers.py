"""Several processes on one project, which die at random: they divide the work and never double it."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from crash.scenarios import Scenario
from crash.tally import Tally
from crash.worker import SEED, Order, Workshop

WORKERS = 4
SECONDS = float(os.environ.get("TALLYMARK_SECONDS", "120"))
FILES = {"append": 180, "merge": 180, "slices": 40}


@pytest.mark.big
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("destination", ["delta", "sqlite", "duckdb", "postgres"])
def test_four_workers_that_die(
    destination: str, workshop: Workshop, tally: Tally, tmp_path: Path, postgres: Callable[[], str]
) -> None:
    """400 files come in over the whole time. With PostgreSQL the ledger is there too."""
    print(f"repeat with TALLYMARK_SEED={SEED}")
    chance = random.Random(f"{SEED} workers {destination}")
    url = postgres() if destination == "postgres" else ""
    scenario = Scenario.build(
        tmp_path / "p",
        destination,
        tuple(FILES),
        postgres=url,
        ledger=url and postgres(),
        file_count=0,
        settings="batch: {max_files: 8}",
    )
    to_come = [kind for kind, number in FILES.items() for _ in range(number)]
    chance.shuffle(to_come)
    crew = Crew(workshop, scenario, chance)
    started = time.monotonic()
    while (passed := time.monotonic() - started) < SECONDS:
        while len(to_come) > max(0, 400 * (1 - 1.2 * passed / SECONDS)):
            scenario.drop(to_come.pop())
        if crew.kill_one():
            tally.add(destination, "one of four workers")
        time.sleep(chance.uniform(0.2, 4.0))
    for kind in to_come:
        scenario.drop(kind)
    crew.end()
    ended = workshop.finish(scenario.root)
    assert ended.done, ended
    assert sum(scenario.count.values()) == 400
    assert scenario.differences() == []
    assert crew.outcomes["loaded"] > 0
    print(dict(crew.outcomes), f"{tally.total} kills, {time.monotonic() - started:.0f} s")


class Crew:
    """Keeps four at work: who is done or dead is replaced."""

    def __init__(self, workshop: Workshop, scenario: Scenario, chance: random.Random):
        self._workshop = workshop
        self._order = Order(scenario.root, watched=False)
        self._chance = chance
        self._at_work = [self._start() for _ in range(WORKERS)]
        self.outcomes: Counter[str] = Counter()

    def kill_one(self) -> bool:
        place = self._chance.randrange(WORKERS)
        self._at_work[place].kill()
        killed = self._ended(self._at_work[place])
        for index, process in enumerate(self._at_work):
            if index != place and process.exitcode is not None:
                self._ended(process)
                self._at_work[index] = self._start()
        self._at_work[place] = self._start()
        return killed

    def end(self) -> None:
        for process in self._at_work:
            self._ended(process)

    def _start(self) -> ForkServerProcess:
        return self._workshop.start(self._order)

    def _ended(self, process: ForkServerProcess) -> bool:
        ended = self._workshop.wait(process, self._order)
        self.outcomes.update(ended.outcomes.values())
        unexpected = [text for text in ended.failures if "unexpected" in text]
        assert not unexpected, unexpected
        return ended.killed
