"""How many processes were killed where, and how many calls failed, over all tests and workers of a test run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

PROPERTY = "kills"


@dataclass
class Tally:
    """Of one test."""

    record: Callable[[str, object], None]
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)  # (destination, step) → times

    def add(self, destination: str, step: str, times: int = 1) -> None:
        self.kills[destination, step] += times

    @property
    def total(self) -> int:
        return self.kills.total()

    def close(self) -> None:
        self.record(PROPERTY, [[*where, times] for where, times in self.kills.items()])


def summary(reports: Iterable[Any]) -> list[str]:
    """`reports` are pytest's, of which those of the tests' end carry what was recorded."""
    kills: Counter[tuple[str, str]] = Counter()
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY and report.when == "teardown":
                kills.update({(destination, step): times for destination, step, times in value})
    if not kills:
        return []
    destinations = sorted({destination for destination, _ in kills})
    lines = [f"{'step':45}" + "".join(f"{name:>10}" for name in destinations)]
    for step in sorted({step for _, step in kills}):
        lines.append(f"{step[:45]:45}" + "".join(f"{kills[name, step] or '':>10}" for name in destinations))
    totals = [sum(times for (place, _), times in kills.items() if place == name) for name in destinations]
    lines.append(f"{f'{sum(totals)} kills and faults':45}" + "".join(f"{total:>10}" for total in totals))
    return lines
