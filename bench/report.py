"""Figures as JSON, and the page that is made from them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from growth import Point
from known_files import KnownFiles
from peers.environments import PeerMissing, python_of
from timing import WARM_UPS, Result, Timed

DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "benchmarks.json"
PAGE = DOCS / "benchmarks.md"
PLOTS = DOCS / "benchmarks"

_HEAD = """# Benchmarks

Made by `make bench` (and `make bench-full`, which goes to 10M and 30M rows and starts a process for each
load): do not edit. Every scenario runs Tallymark and the other sides on the same rows, and compares the
tables at the end. All sides on Spark share one Java process and take turns. Shown is the median of
{repetitions} loads with the fastest and the slowest of them. A load of Tallymark is whole: with its marker,
counts, checks and ledger; what is written by hand has none of these. A ratio below 1 means that Tallymark
is faster.

{headline}
"""
_LOADS = """## Loads on Spark

`default settings` are those of Spark and Delta; `our settings` are those that Tallymark gives its own
session. Whoever writes a load by hand could set them too, so the **fair ratio** is against the fastest load
that is written by hand on our settings. *Warm* is after small loads of every kind and {warm_ups} warm-ups of
its own, in one process. *Exec to exit* is a process that starts Spark, loads one file and ends; the *third
load* is that of such a process. Processor time is that of Python and Java together. Spark's heap is 2 GiB,
whatever the size.
"""
_OTHERS = """## Loads by other tools

Other tools run in a process and environment of their own; one that takes a minute or more for a load is
measured once. They do less: dlt, for one, hands a CSV file to PostgreSQL unread, and its table has no index
on the key. PostgreSQL warms up by more loads into another table.
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
            name: {**_times(timed), "jobs": max(timed.jobs, default=0), "note": timed.note}
            for name, timed in result.sides.items()
        }
        fresh = {
            name: {"exec_to_exit": _times(times.exec_to_exit), "third_load": _times(times.third_load)}
            for name, times in result.fresh.items()
        }
        found = {
            "ours": scenario.ours,
            "bounds": bounds,
            "fair": list(scenario.fair),
            "fair_ratio": _rounded(result.fair_ratio),
            "sides": sides,
            "fresh": fresh,
            "not_measured": result.not_measured,
            "run": self.run,
        }
        self.figures.setdefault("scenarios", {})[scenario.name] = found
        told = ", ".join(f"{name} {side['median']} s" for name, side in sides.items())
        verdicts = ", ".join(f"{b['ratio']} of {b['against']} (at most {b['at_most']})" for b in bounds)
        fair = f"; fair ratio {found['fair_ratio']}" if scenario.fair else ""
        self._tell(f"{scenario.name}: {told}; {verdicts}{fair}")

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
    runs, used = figures["runs"], _runs_of(figures)
    measured = figures.get("scenarios", {})
    on_spark = {name: found for name, found in measured.items() if found.get("fair")}
    others = {name: found for name, found in measured.items() if not found.get("fair")}
    parts = [
        _HEAD.format(repetitions=5, headline=_headline(on_spark)),
        _table(
            ["run", *runs[-1]], [[str(n), *run.values()] for n, run in enumerate(runs, 1) if str(n) in used]
        ),
        _LOADS.format(warm_ups=WARM_UPS),
        _table(
            ["scenario", "Tallymark, warm", "way", "jobs", "fair ratio", "against default settings", "run"],
            [_spark_line(name, found) for name, found in on_spark.items()],
        ),
    ]
    parts += [f"### {name}\n\n" + _sides_table(found) for name, found in on_spark.items()]
    parts += [
        _OTHERS,
        _table(
            ["scenario", "Tallymark", "others", "ratio", "at most", "", "run"],
            [_scenario_line(name, found) for name, found in others.items()],
        ),
    ]
    missing = [
        f"- {name}: {side} was not measured: {why}"
        for name, found in measured.items()
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


def _runs_of(figures: dict[str, Any]) -> set[str]:
    """Those that still have a figure on the page."""
    found = [*figures.get("scenarios", {}).values(), *figures.get("known_files", {}).values()]
    grown = [run for sizes in figures.get("growth_runs", {}).values() for run in sizes.values()]
    return {*(str(one["run"]) for one in found), *map(str, grown)}


def _headline(on_spark: dict[str, dict[str, Any]]) -> str:
    if not on_spark:
        return "No load on Spark has been measured against hand-written ones on the same settings yet."
    worst = max(on_spark, key=lambda name: on_spark[name]["fair_ratio"])
    ratio = on_spark[worst]["fair_ratio"]
    return (
        f"**On the same settings, the worst warm load takes {ratio} times as long as the fastest that is "
        f"written by hand: {worst}.**"
    )


def _spark_line(name: str, found: dict[str, Any]) -> list[str]:
    ours = found["sides"][found["ours"]]
    on_defaults = [b for b in found["bounds"] if b["against"].endswith("default settings")]
    told = "; ".join(f"{b['ratio']} (at most {b['at_most']})" for b in on_defaults)
    return [
        name,
        _spread(ours),
        ours["note"],
        str(ours["jobs"] or ""),
        str(found["fair_ratio"]),
        told,
        found["run"],
    ]


def _sides_table(found: dict[str, Any]) -> str:
    ours = found["sides"][found["ours"]]
    rows = []
    for name, side in found["sides"].items():
        fresh = found.get("fresh", {}).get(name)
        rows.append(
            [
                name,
                _spread(fresh["exec_to_exit"]) if fresh else "",
                _spread(fresh["third_load"]) if fresh else "",
                _spread(side),
                f"{median(side['processor']):.3g} s" if side.get("processor") else "",
                "" if side is ours else f"{ours['median'] / side['median']:.2f}",
            ]
        )
    heads = ["side", "exec to exit", "third load", "warm", "processor time, warm", "Tallymark's ratio, warm"]
    return _table(heads, rows)


def _spread(side: dict[str, Any]) -> str:
    return f"{side['median']} s ({min(side['seconds'])} to {max(side['seconds'])})"


def _times(timed: Timed) -> dict[str, Any]:
    return {
        "seconds": [_rounded(taken) for taken in timed.seconds],
        "median": _rounded(timed.median),
        "processor": [_rounded(used) for used in timed.processor],
    }


def _scenario_line(name: str, found: dict[str, Any]) -> list[str]:
    ours = found["sides"][found["ours"]]
    others = "; ".join(f"{n} {s['median']} s" for n, s in found["sides"].items() if n != found["ours"])
    met = all(b["ratio"] is not None and b["ratio"] <= b["at_most"] for b in found["bounds"])
    return [
        name,
        f"{ours['median']} s",
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
