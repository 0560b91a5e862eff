"""Prints how long each case of the conformance suite took, on each destination."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

_CASE = re.compile(
    r"tests/conformance/test_conformance_\w+\.py::(?P<test>\w+)\[(?P<kind>[a-z_]+)(?:-(?P<case>.+))?\]"
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    seconds: dict[str, dict[str, float]] = defaultdict(dict)
    for report in terminalreporter.stats.get("passed", []):
        if report.when == "call" and (found := _CASE.search(report.nodeid)):
            seconds[found["case"] or found["test"].removeprefix("test_")][found["kind"]] = report.duration
    if not seconds:
        return
    kinds = sorted({kind for times in seconds.values() for kind in times})
    terminalreporter.section("seconds per case of the conformance suite")
    terminalreporter.line("".join(f"{kind[-12:]:>13}" for kind in kinds))
    for case, times in sorted(seconds.items()):
        cells = "".join(f"{times[kind]:13.1f}" if kind in times else " " * 13 for kind in kinds)
        terminalreporter.line(f"{cells}  {case.replace('_', ' ')}")
    totals = "".join(f"{sum(times.get(kind, 0) for times in seconds.values()):13.1f}" for kind in kinds)
    terminalreporter.line(f"{totals}  all of them")
