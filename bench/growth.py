"""What one batch costs as things grow: the table, its commits, its columns."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

import by_hand
import tallymark as tm
from by_hand import HandTable
from delta_scenarios import HAND, OURS
from rows import Batches, start_rows
from spark_engine import Engine

BATCH = 10_000
REPETITIONS = 3


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
    """One table that loads of our own are added to, each a commit with its marker. Those in between add a
    row, the measured ones are upserts. Files of one row are compacted first: they are another cost."""
    place = _fresh(folder)
    batches = Batches(engine.ours, place, 100_000, 100)
    target, settings = _ours(engine, place, start=100_000)
    first = pq.read_schema(next((place / "start").glob("*.parquet")))
    done = 1
    number = 0
    for size in sizes:
        while done < size:
            row = place / f"row-{done}.parquet"
            pq.write_table(pa.table({"id": pa.array([-done], first.field("id").type)}), row)
            tm.merge(row, target, strategy="append_only", provenance=False, spark=engine.ours)
            row.unlink()
            done += 1
        engine.ours.sql(f"OPTIMIZE delta.`{target}`")
        done += 1
        seconds = []
        for _ in range(REPETITIONS + 1):
            file = batches.file(number)
            started = time.perf_counter()
            tm.merge(file, target, **settings)
            seconds.append(time.perf_counter() - started)
            shutil.rmtree(file.parent)
            done, number = done + 1, number + 1
        yield Point("commits", size, OURS, median(seconds[1:]))
    shutil.rmtree(place, ignore_errors=True)


def _upserts(
    engine: Engine, folder: Path, what: str, size: int, *, table_rows: int, columns: int = 8
) -> Iterator[Point]:
    place = _fresh(folder)
    batches = Batches(engine.ours, place, table_rows, BATCH, columns=columns)
    target, settings = _ours(engine, place, start=table_rows, columns=columns)
    table = HandTable(engine.by_hand, place / "by-hand")
    table.create(start_rows(engine.ours, table_rows, columns))
    seconds: dict[str, list[float]] = {OURS: [], HAND: []}
    for number in range(REPETITIONS + 1):
        file = batches.file(number)
        for side in (OURS, HAND):
            started = time.perf_counter()
            if side == OURS:
                tm.merge(file, target, **settings)
            else:
                by_hand.upsert(table, file)
            seconds[side].append(time.perf_counter() - started)
    shutil.rmtree(place, ignore_errors=True)
    for side, taken in seconds.items():
        yield Point(what, size, side, median(taken[1:]))


def _ours(engine: Engine, place: Path, start: int, columns: int = 8) -> tuple[Path, dict[str, object]]:
    start_rows(engine.ours, start, columns).write.parquet(str(place / "start"))
    settings = {"strategy": "upsert", "unique_key": "id", "provenance": False, "spark": engine.ours}
    tm.merge(f"{place}/start/*.parquet", place / "ours", **settings)
    return place / "ours", settings


def _fresh(folder: Path) -> Path:
    place = folder / "growth"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place
