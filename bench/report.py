"""Figures as JSON, and the page that is made from them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from growth import Point
from known_files import KnownFiles
from peers.environments import PeerMissing, python_of
from timing import WARM_UPS, Result

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "benchmarks.json"
PAGE = DOCS / "benchmarks.md"
PLOTS = DOCS / "benchmarks"

_HEAD = """# Benchmarks

Made by `make bench` (and `make bench-full`, which goes to 10M and 30M rows): do not edit. Every scenario
runs Tallymark and the other side on the same rows, and compares the tables at the end. Sides on Spark share
one process and take turns, after small loads of every kind and {warm_ups} warm-ups of their own (one before
November 18th); PostgreSQL warms up by five more loads into another table. The figure is the median of
{repetitions} loads each (nine for cdc into Delta), whole: with marker, counts, checks and a ledger for
Tallymark. `hand MERGE` is a plain MERGE on Spark's and Delta's default settings with deletion vectors, in a
JVM with Tallymark's; `best recipe` is what their documentation advises, on Tallymark's own settings.
Spark's heap is 2 GiB, whatever the size. Other tools run in a process and environment of their own; one
that takes a minute or more for a load is measured once. They do less: dlt, for one, hands a CSV file to
PostgreSQL unread, and its table has no index on the key. A ratio below 1 means that Tallymark is faster.
"""

_ABOUT = {
    "commits": "Upserts of 100 rows into 100,000. Each commit in between adds a file of one row; the "
    "table is compacted before it is measured. The young one has the measured loads alone, in turn with the "
    "other's.\n\n"
}


@dataclass
class Report:
    """Every figure names its run: `--only` and a stopped run leave figures of other machines and commits."""

    machine: dict[str, str]
    figures: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, machine: dict[str, str]) -> Report:
        return cls(machine, json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {})

    @property
    def run(self) -> str:
        runs = self.figures.setdefault("runs", [])
        this = {"measured on": datetime.now(UTC).date().isoformat(), **self.machine}
        if this not in runs:
            runs.append(this)
        return str(runs.index(this) + 1)

    def add_result(self, result: Result) -> None:
        scenario = result.scenario
        bounds = [{**asdict(bound), "ratio": _rounded(result.ratio(bound))} for bound in scenario.bounds]
        sides = {
            name: {
                "seconds": [_rounded(taken) for taken in timed.seconds],
                "median": _rounded(timed.median),
                "jobs": max(timed.jobs, default=0),
                "note": timed.note,
            }
            for name, timed in result.sides.items()
        }
        found = {
            "ours": scenario.ours,
            "bounds": bounds,
            "sides": sides,
            "not_measured": result.not_measured,
            "run": self.run,
        }
        self.figures.setdefault("scenarios", {})[scenario.name] = found
        told = ", ".join(f"{name} {side['median']} s" for name, side in sides.items())
        verdicts = ", ".join(f"{b['ratio']} of {b['against']} (at most {b['at_most']})" for b in bounds)
        self._tell(f"{scenario.name}: {told}; {verdicts}")

    def add_point(self, point: Point) -> None:
        found = self.figures.setdefault("growth", {}).setdefault(point.what, {}).setdefault(point.side, {})
        found[str(point.size)] = _rounded(point.seconds)
        self.figures.setdefault("growth_runs", {}).setdefault(point.what, {})[str(point.size)] = self.run
        self._tell(f"{point.what} {point.size:,}: {point.side} {point.seconds:.2f} s")

    def add_known_files(self, found: KnownFiles) -> None:
        self.figures.setdefault("known_files", {})[str(found.known)] = {**asdict(found), "run": self.run}
        self._tell(f"{found.known:,} known files: {asdict(found)}")

    def save(self, seconds: float) -> None:
        print(f"{seconds / 60:.0f} minutes")
        self._write()
        plots = _plot()
        PAGE.write_text(page(self.figures, plots), "utf-8")

    def _tell(self, line: str) -> None:
        """Written at once: the run takes long, and may be stopped."""
        print(line, flush=True)
        self._write()

    def _write(self) -> None:
        FIGURES.write_text(json.dumps(self.figures, indent=2) + "\n", "utf-8")


def page(figures: dict[str, Any], plots: list[str]) -> str:
    runs = figures["runs"]
    parts = [
        _HEAD.format(repetitions=3, warm_ups=WARM_UPS),
        _table(["run", *runs[-1]], [[str(n), *run.values()] for n, run in enumerate(runs, 1)]),
        "## Loads\n",
        _table(
            ["scenario", "Tallymark", "way", "jobs", "others", "ratio", "at most", "", "run"],
            [_scenario_line(name, found) for name, found in figures.get("scenarios", {}).items()],
        ),
    ]
    missing = [
        f"- {name}: {side} was not measured: {why}"
        for name, found in figures.get("scenarios", {}).items()
        for side, why in found["not_measured"].items()
    ]
    parts += ["\n".join(missing) + "\n"] if missing else []
    if figures.get("growth") or figures.get("known_files"):
        parts.append("## Growth\n")
    for what, sides in figures.get("growth", {}).items():
        parts.append(_growth_table(what, sides, figures["growth_runs"][what]))
    if figures.get("known_files"):
        parts += ["### Known files\n", _known_files_table(figures["known_files"])]
    parts += [f"![{name}](benchmarks/{name}.svg)\n" for name in plots]
    return "\n".join(parts)


def _scenario_line(name: str, found: dict[str, Any]) -> list[str]:
    ours = found["sides"][found["ours"]]
    others = "; ".join(f"{n} {s['median']} s" for n, s in found["sides"].items() if n != found["ours"])
    met = all(b["ratio"] is not None and b["ratio"] <= b["at_most"] for b in found["bounds"])
    return [
        name,
        f"{ours['median']} s",
        ours["note"],
        str(ours["jobs"] or ""),
        others,
        "; ".join(str(b["ratio"]) for b in found["bounds"]),
        "; ".join(str(b["at_most"]) for b in found["bounds"]),
        "" if met else "not met",
        found["run"],
    ]


def _growth_table(what: str, sides: dict[str, dict[str, float]], runs: dict[str, str]) -> str:
    sizes = sorted({int(size) for points in sides.values() for size in points})
    rows = [
        [f"{size:,}", *(str(points.get(str(size), "")) for points in sides.values()), runs[str(size)]]
        for size in sizes
    ]
    return f"### Seconds of one batch by {what}\n\n{_ABOUT.get(what, '')}" + _table(
        [what, *sides, "run"], rows
    )


def _known_files_table(found: dict[str, Any]) -> str:
    rows = []
    for known, one in found.items():
        nothing, there, moved = one["nothing_new"], one["all_there"], one["moved_away"]
        rows.append(
            [
                f"{int(known):,}",
                f"{nothing['seconds']:.2f} s, {'Java' if nothing['starts_java'] else 'no Java'}",
                f"{there['seconds']:.2f} s, {there['peak_mib']:.0f} MiB",
                f"{moved['seconds']:.2f} s, {moved['peak_mib']:.0f} MiB",
                one["run"],
            ]
        )
    return _table(
        ["known files", "run with nothing new", "100 new", "100 new, others moved away", "run"], rows
    )


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _plot() -> list[str]:
    """By a library that only the plots need, in an environment of its own."""
    try:
        python = python_of("plot")
    except PeerMissing as missing:
        print(f"no plots: {missing}")
        return []
    PLOTS.mkdir(exist_ok=True)
    script = Path(__file__).with_name("plot.py")
    drawn = subprocess.run(
        [str(python), str(script), str(FIGURES), str(PLOTS)], capture_output=True, text=True, check=True
    )
    return drawn.stdout.split()


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.3g}")
