"""What one batch costs as things grow: the table, its commits, its columns."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import by_hand
import tallymark as tm
from by_hand import HandTable
from delta_scenarios import HAND, ON_OURS, OURS, planned_as_ours
from rows import Batches, start_rows
from spark_engine import Engine

BATCH = 10_000
REPETITIONS = 3
COMMIT_REPETITIONS = 6  # by so little may two tables differ that three say nothing
YOUNG = "a young table beside it"
BY_HAND = f"{HAND}{ON_OURS}"


@dataclass(frozen=True)
class Point:
    what: str  # grows
    size: int
    side: str
    seconds: float


def by_table_rows(engine: Engine, folder: Path, sizes: tuple[int, ...]) -> Iterator[Point]:
    for size in sizes:
        yield from _upserts(engine, folder, "rows of the table", size, table_rows=size)


def by_columns(engine: Engine, folder: Path, sizes: tuple[int, ...]) -> Iterator[Point]:
    for size in sizes:
        yield from _upserts(engine, folder, "columns", size, table_rows=500_000, columns=size)


def by_commits(engine: Engine, folder: Path, sizes: tuple[int, ...]) -> Iterator[Point]:
    """One table that loads of our own are added to, each a commit with its marker, and a young one beside it
    that gets nothing but the measured upserts, in turn: what differs between them is the commits' doing.
    Those in between add a row. Files of one row are compacted first: they are another cost."""
    place = _fresh(folder)
    batches = Batches(engine.ours, place, 100_000, 100)
    settings = _start(engine, place, 100_000)
    old, young = place / "old", place / "young"
    for table in (old, young):
        tm.merge(f"{place}/start/*.parquet", table, **settings)
    first = pq.read_schema(next((place / "start").glob("*.parquet")))
    done = 1
    number = 0
    for size in sizes:
        while done < size:
            row = place / f"row-{done}.parquet"
            pq.write_table(pa.table({"id": pa.array([-done], first.field("id").type)}), row)
            tm.merge(row, old, strategy="append_only", provenance=False, spark=engine.ours)
            row.unlink()
            done += 1
        engine.ours.sql(f"OPTIMIZE delta.`{old}`")
        done += 1
        seconds: dict[Path, list[float]] = {old: [], young: []}
        for _ in range(COMMIT_REPETITIONS + 1):
            file = batches.file(number)
            for table, taken in seconds.items():
                started = time.perf_counter()
                tm.merge(file, table, **settings)
                taken.append(time.perf_counter() - started)
            shutil.rmtree(file.parent)
            done, number = done + 1, number + 1
        yield Point("commits", size, OURS, median(seconds[old][1:]))
        yield Point("commits", size, YOUNG, median(seconds[young][1:]))
    shutil.rmtree(place, ignore_errors=True)


def _upserts(
    engine: Engine, folder: Path, what: str, size: int, *, table_rows: int, columns: int = 8
) -> Iterator[Point]:
    place = _fresh(folder)
    batches = Batches(engine.ours, place, table_rows, BATCH, columns=columns)
    settings = _start(engine, place, table_rows, columns)
    target = place / "ours"
    tm.merge(f"{place}/start/*.parquet", target, **settings)
    table = HandTable(engine.on_our_settings(), place / "by-hand")
    by_hand_on_ours = planned_as_ours(by_hand.upsert)
    table.create(start_rows(engine.ours, table_rows, columns))
    seconds: dict[str, list[float]] = {OURS: [], BY_HAND: []}
    for number in range(REPETITIONS + 1):
        file = batches.file(number)
        for side in (OURS, BY_HAND):
            started = time.perf_counter()
            if side == OURS:
                tm.merge(file, target, **settings)
            else:
                by_hand_on_ours(table, file)
            seconds[side].append(time.perf_counter() - started)
    shutil.rmtree(place, ignore_errors=True)
    for side, taken in seconds.items():
        yield Point(what, size, side, median(taken[1:]))


def _start(engine: Engine, place: Path, rows: int, columns: int = 8) -> dict[str, Any]:
    start_rows(engine.ours, rows, columns).write.parquet(str(place / "start"))
    return {"strategy": "upsert", "unique_key": "id", "provenance": False, "spark": engine.ours}


def _fresh(folder: Path) -> Path:
    place = folder / "growth"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place
