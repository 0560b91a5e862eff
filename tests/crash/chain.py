"""Kills a project's loads one after the other: each run begins with what the dead left behind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from crash.scenarios import Scenario
from crash.seams import BEFORE, DURING, Point
from crash.tally import Tally
from crash.worker import Ended, Order, Workshop

KILLS_PER_PROJECT = 10
LEAST, MOST = 2, 4  # files that wait: every run has something to do, and something newer than the dead had
TRIES = 3
# What has an effect is also killed while it is under way.
_EFFECTS = (
    "ledger.commit",
    "ledger.create",
    "prepared.commit",
    "session.commit",
    "spark.save",
    "spark.sql MERGE",
    "spark.sql CALL",
    "spark.sql CREATE",
    "spark.append",
)
_LONGEST, _SHORT = 1.5, 0.02  # seconds until such a step is killed: of Spark, of a database


@dataclass
class Chain:
    workshop: Workshop
    fresh: Callable[[], Scenario]  # of one kind
    chance: random.Random
    tally: Tally
    passed: Counter[Point] = field(default_factory=Counter)  # of the last run that came to its end
    aims: set[Point] = field(default_factory=set)  # the points of a clean run
    unreached: Counter[Point] = field(default_factory=Counter)  # how often a run ended without passing it

    def kill(self, limit: int | None = None, part: int = 0, parts: int = 1) -> list[str]:
        """At every point that a run passes (of those that change nothing, at one part), or at so many of them.
        Gives the differences that were found."""
        found, points = self._clean_run()
        points = [point for point in points if _is_in(point, part, parts)]
        waiting = self._shuffled(points)
        if limit is not None:  # a small sample has half of its kills around what changes something
            waiting.sort(key=lambda point: point.step.startswith(_EFFECTS))
            waiting = [*waiting[: limit - limit // 2], *waiting[-(limit // 2) :]]
        self.aims = set(points)
        known, rare = set(points), list[Point]()
        while (waiting or rare) and (limit is None or self.tally.total < limit):
            scenario = self.fresh()
            for number in range(KILLS_PER_PROJECT):
                # What only the first load of a table passes is tried at the beginning of a project.
                source = rare if rare and number == 0 else waiting
                if not source or (limit is not None and self.tally.total >= limit):
                    break
                point = source.pop()
                ended = self._kill_at(scenario, point)
                if not ended.killed and self.unreached[point] < TRIES:
                    (rare if point in self.aims else waiting).append(point)
                if limit is None:  # recovery passes points that a clean run does not
                    met = [point for point in ended.points if _is_in(point, part, parts)]
                    waiting += self._shuffled(_with_during(met, but=known))
                    known.update(met)
            found += self.end_of(scenario)
        return found

    @property
    def missed(self) -> set[Point]:
        """Points of a clean run at which nobody could be killed. A step can be over sooner than its kill."""
        return {p for p in self.aims if self.unreached[p] >= TRIES and p.when != DURING}

    def _clean_run(self) -> tuple[list[str], list[Point]]:
        scenario = self.fresh()
        ended = self.workshop.run(Order(scenario.root))
        assert ended.done, (ended, _log(scenario))
        self.passed = Counter(ended.points)
        return self.end_of(scenario), _with_during(ended.points)

    def _kill_at(self, scenario: Scenario, point: Point) -> Ended:
        [kind] = scenario.kinds
        waiting = scenario.waiting(kind)
        for _ in range(max(LEAST - waiting, 1 if waiting < MOST else 0)):
            scenario.drop(kind)
        reached = Point(point.step, BEFORE) if point.when == DURING else point
        nth = 1 if self.unreached[point] else self.chance.randint(1, max(1, self.passed[reached] // LEAST))
        longest = (
            _LONGEST
            if scenario.destination in ("delta", "iceberg") and "ledger" not in point.step
            else _SHORT
        )
        order = Order(scenario.root, die_at=point, nth=nth, seconds=self.chance.uniform(0, longest))
        ended = self.workshop.run(order)
        if ended.killed:
            self.tally.add(scenario.destination, str(point))
        else:
            self.unreached[point] += 1
        assert not any("unexpected" in text for text in ended.failures), (point, ended.failures)
        return ended

    def end_of(self, scenario: Scenario) -> list[str]:
        """Runs the project to its end, compares, and removes it if all is well. A newer file comes first: what
        the dead left open must go before it."""
        for kind in scenario.kinds:
            scenario.drop(kind)
        ended = self.workshop.finish(scenario.root)
        found = scenario.differences()
        if not ended.done:
            found.append(f"{scenario.destination}: never came to its end: {ended} {_log(scenario)}")
        if not found:
            scenario.remove()
        return found

    def _shuffled(self, points: Sequence[Point]) -> list[Point]:
        return self.chance.sample(points, len(points))


def _is_in(point: Point, part: int, parts: int) -> bool:
    return point.step.startswith(_EFFECTS) or crc32(str(point).encode()) % parts == part


def _with_during(points: Sequence[Point], but: set[Point] | None = None) -> list[Point]:
    distinct = [point for point in dict.fromkeys(points) if point not in (but or ())]
    under_way = [p for p in distinct if p.when == BEFORE and p.step.startswith(_EFFECTS)]
    return [*distinct, *(Point(p.step, DURING) for p in under_way)]


def _log(scenario: Scenario) -> str:
    return (scenario.root / "worker.log").read_text()[-2000:]
