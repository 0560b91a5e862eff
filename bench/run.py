"""`make bench`: every scenario, one after the other. Writes docs/benchmarks.json, the page and its plots.

.venv/bin/python bench/run.py [--full] [--fresh] [--only TEXT ...]

`--only` runs the scenarios whose name holds one of the texts, and leaves the others' figures as they are.
Those that a slow machine does not come to within half an hour stay too; with `--full` none is too late.
`--fresh` also measures each load into a Delta table in processes of its own: a quarter of an hour a scenario.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import growth
import known_files
from delta_scenarios import LARGE, SCENARIOS, WARMING, Bench
from machine import machine
from peer_scenarios import PEERS, SLOW, upsert_by_peers
from report import Report
from spark_engine import Engine, start_engine
from sql_scenarios import feed_into, postgres_upsert
from timing import Bound, Result

REPETITIONS = 5
DRIVER_MEMORY = "2g"
LAST_START = 25 * 60  # seconds: what begins then ends within half an hour
SCATTERED = {  # scenario → rows of its table, peers that do the same, bounds against them
    "upsert 100k (half new) into 2M, scattered keys": (2_000_000, tuple(PEERS), ()),
    "upsert 100k into 10M, scattered keys": (10_000_000, ("delta-rs",), (Bound("delta-rs", 1.0),)),
    "upsert 100k into 30M, scattered keys": (30_000_000, ("delta-rs",), (Bound("delta-rs", 0.8),)),
}


Measure = Callable[[], Result]


def scenarios(engine: Engine, folder: Path, *, full: bool, fresh: bool) -> Iterator[tuple[str, Measure]]:
    yield "PostgreSQL upsert", partial(postgres_upsert, engine, folder, REPETITIONS, 500_000, full=full)
    for kind in ("sqlite", "duckdb"):
        events = 50_000 if full else 10_000  # filedge takes minutes for the larger one
        yield f"cdc {kind}", partial(feed_into, engine, folder, REPETITIONS, kind, events)
    for scenario, make in [*SCENARIOS, *(LARGE if full else [])]:
        bench = Bench(engine, folder, REPETITIONS, DRIVER_MEMORY if fresh else "")
        measure = partial(bench.measure, scenario, make)
        if scenario.name in SCATTERED:
            table_rows, peers, bounds = SCATTERED[scenario.name]
            chosen = tuple(peer for peer in peers if full or peer not in SLOW)
            measure = partial(_with_peers, engine, folder, measure, table_rows, chosen, bounds)
        yield scenario.name, measure


def _with_peers(
    engine: Engine,
    folder: Path,
    measure: Measure,
    table_rows: int,
    peers: tuple[str, ...],
    bounds: tuple[Bound, ...],
) -> Result:
    found = measure()
    timed, why_not = upsert_by_peers(engine, folder, REPETITIONS, table_rows, 100_000, peers)
    scenario = replace(found.scenario, bounds=found.scenario.bounds + bounds)
    return replace(found, scenario=scenario, sides={**found.sides, **timed}, not_measured=why_not)


def grown(
    engine: Engine, folder: Path, *, full: bool, wanted: Callable[[str], bool]
) -> Iterator[growth.Point]:
    sizes = (100_000, 1_000_000, *((10_000_000, 30_000_000) if full else ()))
    if wanted("growth rows"):
        yield from growth.by_table_rows(engine, folder, sizes)
    if wanted("growth columns"):
        yield from growth.by_columns(engine, folder, (8, 80))
    if wanted("growth commits"):
        yield from growth.by_commits(engine, folder, (10, 100, *((1_000,) if full else ())))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument(
        "--full", action="store_true", help="up to 30M rows, 1,000 commits, 1M known files"
    )
    arguments.add_argument("--fresh", action="store_true", help="each load also in a process of its own")
    arguments.add_argument("--only", nargs="+", default=[], metavar="TEXT")
    given = arguments.parse_args()
    report = Report.load(machine())
    folder = Path(tempfile.mkdtemp(prefix="tallymark-bench-"))
    started = time.monotonic()
    failed: list[str] = []
    too_late: list[str] = []

    def wanted(name: str) -> bool:
        if given.only and not any(text.casefold() in name.casefold() for text in given.only):
            return False
        if not (given.full or given.fresh) and time.monotonic() - started > LAST_START:
            too_late.append(name)
            return False
        return True

    try:
        engine = start_engine(DRIVER_MEMORY, folder / "home")
        for scenario, make in WARMING:
            Bench(engine, folder, 0).measure(scenario, make)
        for name, measure in scenarios(engine, folder, full=given.full, fresh=given.fresh):
            if not wanted(name):
                continue
            try:
                report.add_result(measure())
            except Exception:  # the others are still worth their time
                failed.append(name)
                traceback.print_exc()
        for point in grown(engine, folder, full=given.full, wanted=wanted):
            report.add_point(point)
        if wanted("known files"):
            for found in known_files.measure(known_files.SIZES if given.full else known_files.SIZES[:-1]):
                report.add_known_files(found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        report.save(time.monotonic() - started)
    if too_late:
        print(f"not measured, for lack of time: {'; '.join(too_late)}. One of them: bench/run.py --only TEXT")
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
