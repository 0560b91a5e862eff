"""Two or more sides that do the same job: run in turn, timed, their results compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from processor_time import processor_seconds

if TYPE_CHECKING:
    from fresh_process import FreshTimes

WARM_UPS = 2  # by the second load most of what it shares with the measured ones is compiled


@dataclass(frozen=True)
class Side:
    """`load(n)` applies the n-th batch. `digest` says what the table holds at the end: sides that did the
    same job give the same."""

    name: str
    load: Callable[[int], object]
    digest: Callable[[], object] | None = None


@dataclass(frozen=True)
class Timed:
    seconds: tuple[float, ...]  # without the warm-ups
    jobs: tuple[int, ...] = ()  # Spark jobs of each
    note: str = ""  # what the last load said of itself
    processor: tuple[float, ...] = ()  # seconds of this process and all that it started, Java among them

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True)
class Bound:
    against: str  # the side that the ratio is taken of
    at_most: float


@dataclass(frozen=True)
class Scenario:
    name: str
    ours: str
    bounds: tuple[Bound, ...]
    about: str = ""
    fair: tuple[str, ...] = ()  # sides that are written by hand and run on Tallymark's own settings


@dataclass(frozen=True)
class Result:
    scenario: Scenario
    sides: dict[str, Timed]
    not_measured: dict[str, str] = field(default_factory=dict)  # side → why
    fresh: dict[str, FreshTimes] = field(default_factory=dict)  # in processes of their own

    def ratio(self, bound: Bound) -> float | None:
        if bound.against not in self.sides:
            return None
        return self.against(bound.against)

    def against(self, side: str) -> float:
        return self.sides[self.scenario.ours].median / self.sides[side].median

    @property
    def fair_ratio(self) -> float | None:
        """Against the fastest of what is written by hand on the same settings."""
        return max((self.against(side) for side in self.scenario.fair if side in self.sides), default=None)


def in_turn(
    sides: Sequence[Side], repetitions: int, jobs_so_far: Callable[[], int] = lambda: 0
) -> dict[str, Timed]:
    """Every repetition runs all sides, so that what else the machine does meets all of them. A side that
    goes first finds colder files: the order turns with each repetition."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    processor: dict[str, list[float]] = {side.name: [] for side in sides}
    jobs: dict[str, list[int]] = {side.name: [] for side in sides}
    notes: dict[str, str] = {}
    for repetition in range(WARM_UPS + repetitions):
        turn = repetition % len(sides)
        for side in [*sides[turn:], *sides[:turn]]:
            before = jobs_so_far()
            used = processor_seconds()
            started = time.perf_counter()
            said = side.load(repetition)
            took = time.perf_counter() - started
            used = processor_seconds() - used
            notes[side.name] = said if isinstance(said, str) else ""
            if repetition >= WARM_UPS:
                seconds[side.name].append(took)
                processor[side.name].append(used)
                jobs[side.name].append(jobs_so_far() - before)
    _refuse_different_results(sides)
    return {
        side.name: Timed(
            tuple(seconds[side.name]),
            tuple(jobs[side.name]),
            notes[side.name],
            tuple(processor[side.name]),
        )
        for side in sides
    }


def _refuse_different_results(sides: Sequence[Side]) -> None:
    digests = {side.name: side.digest() for side in sides if side.digest is not None}
    if len(set(digests.values())) > 1:
        raise AssertionError(f"the sides did not do the same job: {digests}")
