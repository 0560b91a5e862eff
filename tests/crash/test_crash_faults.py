"""Calls to ledger and destination that fail, once or for as long as the run lasts, and calls that are done but
whose answer is lost. After each: run to the end, compare with the oracle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from crash.loads import Loads
from crash.scenarios import DESTINATIONS, SLICE, Scenario, in_slice
from crash.seams import AFTER, BEFORE, At, Point, Recorder, raising
from crash.tally import Tally
from crash.worker import SEED
from tallymark.errors import CommitUnknown, DestinationError, LedgerError
from tallymark.flow.recover import recover_pipeline
from tallymark.spark import Sessions

pytestmark = pytest.mark.slow

KINDS = ("append", "merge", "replace", "scd2")
IN_SLICE = {"delta": 2, "iceberg": 2, "sqlite": 5, "duckdb": 5, "postgres": 5}
IN_FULL = {"delta": 8, "iceberg": 8, "sqlite": 20, "duckdb": 20, "postgres": 20}  # for each kind
FAULT = "a call that failed or lost its answer"
COMMITS = {"session.commit", "prepared.commit"}


@dataclass(frozen=True)
class Fault:
    point: Point
    nth: int
    for_ever: bool
    raw: bool  # an exception that nobody expects, such as a driver's or the system's own

    def __str__(self) -> str:
        how = "for ever from" if self.for_ever else "at"
        return f"{self.error()!r} {how} call {self.nth} of {self.point}"

    def error(self) -> Exception:
        text = f"injected {self.point}"
        if self.raw or self.point.step.startswith("spark."):
            return OSError(text)
        if self.point.step.startswith("ledger."):
            return LedgerError(text)
        if self.point.when == AFTER and self.point.step in COMMITS:
            return CommitUnknown(text)
        return DestinationError(text)


def possible_faults(points: Sequence[Point]) -> list[Fault]:
    """Every call fails in turn. An answer can be lost only once: the next call is another one."""
    times = Counter(point for point in points if not point.step.startswith("event."))
    return [
        Fault(point, nth, for_ever, raw)
        for point, most in times.items()
        for nth in range(1, most + 1)
        for for_ever in ((False, True) if point.when == BEFORE else (False,))
        for raw in (False, True)
    ]


def chosen_faults(points: Sequence[Point], number: int, chance: random.Random) -> list[Fault]:
    """First one of each step, so that a rare step has its turn too; then any."""
    possible = possible_faults(points)
    chance.shuffle(possible)
    one_of_each = {fault.point: fault for fault in reversed(possible)}
    commits = [f for f in possible if f.point.when == AFTER and f.point.step in (*COMMITS, "spark.save")]
    ordered = [*commits[:1], *one_of_each.values(), *possible]
    return list(dict.fromkeys(ordered))[:number]


@pytest.fixture
def build(tmp_path: Path, sessions: Sessions, postgres: Callable[[], str]) -> Callable[[str, str], Loads]:
    """With PostgreSQL as destination, the ledger is in PostgreSQL as well."""

    def made(destination: str, kind: str) -> Loads:
        url = postgres()
        folder = tmp_path / f"{destination}-{kind}-{len(list(tmp_path.iterdir()))}"
        ledger = url if destination == "postgres" else ""
        scenario = Scenario.build(folder, destination, (kind,), postgres=url, ledger=ledger, file_count=1)
        return Loads(scenario, sessions)

    return made


def attack(build: Callable[[str, str], Loads], destination: str, kind: str, number: int) -> int:
    print(f"seed {SEED}: repeat with TALLYMARK_SEED={SEED}")
    chance = random.Random(f"{SEED} {destination} {kind}")
    loads, later = build(destination, kind), Recorder()
    loads.run()
    loads.scenario.drop(kind)
    loads.run(later)
    assert loads.scenario.differences() == []
    loads.scenario.drop(kind)
    met = endure(loads, kind, chosen_faults(later.points, number, chance), chance)
    assert met >= number - 1 - number // 10, "most faults must be met"
    return met


def attack_first_loads(build: Callable[[str, str], Loads], destination: str, kind: str, number: int) -> int:
    """Of tables that the load makes."""
    print(f"seed {SEED}: repeat with TALLYMARK_SEED={SEED}")
    chance = random.Random(f"{SEED} first {destination} {kind}")
    first = Recorder()
    build(destination, kind).run(first)
    faults = chosen_faults(first.points, number, chance)
    for fault in faults:
        assert endure(build(destination, kind), kind, [fault], chance) == 1
    return len(faults)


def endure(loads: Loads, kind: str, faults: Sequence[Fault], chance: random.Random) -> int:
    """How many of the faults were met. A file waits when it begins, and when it ends."""
    met = 0
    for fault in faults:
        print(fault)
        strikes = At(fault.point, raising(fault.error), fault.nth, fault.for_ever)
        loads.run(strikes)
        met += strikes.reached[fault.point] >= fault.nth
        if chance.random() < 0.3:
            loads.run(work=recover_pipeline)
        loads.finish()
        if fault.point.step == "ledger.release_lease":
            loads.run(work=recover_pipeline)  # takes over the lease that ran out, and gives it back
        assert loads.scenario.differences() == [], f"seed {SEED}: {fault}"
        loads.scenario.drop(kind)
    return met


@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", SLICE)
def test_some_faults(build: Callable[[str, str], Loads], place: str, tally: Tally) -> None:
    destination = in_slice(place, SEED)
    kind = KINDS[(SEED + DESTINATIONS.index(destination)) % len(KINDS)]
    tally.add(destination, FAULT, attack(build, destination, kind, IN_SLICE[destination]))


@pytest.mark.big
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_many_faults(build: Callable[[str, str], Loads], destination: str, kind: str, tally: Tally) -> None:
    tally.add(destination, FAULT, attack(build, destination, kind, IN_FULL[destination]))


@pytest.mark.big
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_faults_of_first_loads(build: Callable[[str, str], Loads], destination: str, tally: Tally) -> None:
    met = attack_first_loads(build, destination, "merge", IN_FULL[destination] // 2)
    tally.add(destination, FAULT, met)
