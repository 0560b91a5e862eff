"""Loads into Delta tables, against what people write by hand on the same Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import by_hand
import tallymark as tm
from by_hand import HandTable
from rows import Batches, one_file, rows, start_rows
from spark_engine import Engine
from timing import WARM_UPS, Bound, Result, Scenario, Side, in_turn

OURS, HAND, TUNED = "tallymark", "hand MERGE", "best recipe"
BARE_REPLACE, BARE_APPEND = "bare replaceWhere", "bare append"
_DIGEST = "count(*) AS n", "sum(amount_cents) AS amounts", "sum(hash(id, note, updated_at)) AS contents"


@dataclass(frozen=True)
class Job:
    """What a scenario loads. `file(n)` makes the n-th batch; hand-written sides by name."""

    start: DataFrame
    file: Callable[[int], Path]
    settings: Mapping[str, Any]
    hand: Mapping[str, by_hand.Load]
    hand_start: DataFrame | None = None  # where it has other columns
    partition_by: tuple[str, ...] = ()
    digest: tuple[str, ...] = _DIGEST
    start_settings: Mapping[str, Any] = field(default_factory=dict)


class Bench:
    def __init__(self, engine: Engine, folder: Path, repetitions: int):
        self.engine = engine
        self.folder = folder
        self.repetitions = repetitions

    def measure(self, scenario: Scenario, make: Callable[[Bench, Path], Job]) -> Result:
        place = self.folder / "scenario"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        job = make(self, place)
        files = [job.file(number) for number in range(WARM_UPS + self.repetitions)]
        sides = [self._ours(job, place, files)]
        for name, load in job.hand.items():
            sides.append(self._by_hand(name, load, job, place, files))
        timed = in_turn(sides, self.repetitions, self.engine.jobs_so_far)
        shutil.rmtree(place, ignore_errors=True)
        return Result(scenario, timed)

    def _ours(self, job: Job, place: Path, files: list[Path]) -> Side:
        target = place / "tables" / "ours"
        start = place / "start"
        job.start.write.parquet(str(start))
        settings = {"provenance": False, "spark": self.engine.ours, **job.settings}
        tm.merge(f"{start}/*.parquet", target, **{**settings, **job.start_settings})

        def load(number: int) -> str:
            receipt = tm.merge(files[number], target, **settings)
            return "already applied" if receipt.already_applied else receipt.way

        return Side(OURS, load, lambda: self._digest(target, job.digest))

    def _by_hand(self, name: str, load: by_hand.Load, job: Job, place: Path, files: list[Path]) -> Side:
        session = self.engine.tuned if name == TUNED else self.engine.by_hand
        table = HandTable(session, place / "tables" / name.replace(" ", "-"))
        table.create(job.hand_start or job.start, job.partition_by)
        return Side(
            name,
            lambda number: load(table, files[number]),
            lambda: self._digest(table.path, job.digest),
        )

    def _digest(self, table: Path, digest: tuple[str, ...]) -> tuple[object, ...]:
        return tuple(self.engine.ours.read.format("delta").load(str(table)).selectExpr(*digest).collect()[0])


def upsert(table_rows: int, batch_rows: int, *, recent: bool = False, known: float = 0.5, columns: int = 8):
    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        batches = Batches(spark, place, table_rows, batch_rows, recent, known, columns)
        return Job(
            start_rows(spark, table_rows, columns),
            batches.file,
            {"strategy": "upsert", "unique_key": "id"},
            {HAND: by_hand.upsert, TUNED: by_hand.upsert_in_range},
        )

    return make


def delivered_again(table_rows: int, batch_rows: int):
    """The rows of the first batch, in another order each time: another content with nothing new."""

    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        batches = Batches(spark, place, table_rows, batch_rows)
        first = batches.file(0)

        def file(number: int) -> Path:
            if number == 0:
                return first
            shuffled = spark.read.parquet(str(first)).orderBy(F.expr(f"xxhash64(id, {number})"))
            return one_file(shuffled, place / f"again-{number}")

        job = upsert(table_rows, batch_rows)(bench, place)
        return Job(job.start, file, job.settings, {HAND: by_hand.upsert})

    return make


def same_file(table_rows: int, batch_rows: int):
    def make(bench: Bench, place: Path) -> Job:
        first = Batches(bench.engine.ours, place, table_rows, batch_rows).file(0)
        job = upsert(table_rows, batch_rows)(bench, place)
        return Job(job.start, lambda _: first, job.settings, {HAND: by_hand.upsert})

    return make


def full_merge(table_rows: int, changed: float):
    """A whole extract: some rows changed, as many are gone and as many new."""

    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        every = int(1 / changed)

        def file(number: int) -> Path:
            ids = spark.range(number * 100, table_rows + number * 100).toDF("id")
            same = rows(ids.where(f"id % {every} <> {number}"), 0)
            other = rows(ids.where(f"id % {every} = {number}"), number + 1)
            return one_file(same.unionAll(other), place / f"batch-{number}")

        return Job(
            start_rows(spark, table_rows),
            file,
            {"strategy": "full_merge", "unique_key": "id"},
            {HAND: by_hand.full_merge, TUNED: by_hand.full_merge_changed},
        )

    return make


def scd2(table_rows: int, batch_rows: int, changed: float):
    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        step = table_rows // batch_rows
        one_in = int(1 / changed)

        def file(number: int) -> Path:
            ids = spark.range(batch_rows).selectExpr(f"id * {step} AS id", f"id % {one_in} = {number} AS new")
            later = f"timestamp_seconds(1700000000 + {number + 1} * 864000) AS updated_at"
            changes = rows(ids.where("new").select("id"), number + 1)
            same = rows(ids.where("NOT new").select("id"), 0)
            frame = changes.unionAll(same)
            frame = frame.selectExpr(*[later if name == "updated_at" else name for name in frame.columns])
            return one_file(frame, place / f"batch-{number}")

        start = start_rows(spark, table_rows)
        return Job(
            start,
            file,
            {"strategy": "scd2", "unique_key": "id", "scd_effective_from": "updated_at"},
            {HAND: by_hand.scd2},
            hand_start=start.selectExpr(
                "*", "updated_at AS valid_from", "CAST(NULL AS timestamp) AS valid_to"
            ),
            digest=(*_DIGEST, "count_if(valid_to IS NULL) AS open"),
        )

    return make


def cdc(table_rows: int, batch_rows: int, deletes: float):
    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        batches = Batches(
            spark,
            place,
            table_rows,
            batch_rows,
            extra=f"if(id < {table_rows}, if(pmod(xxhash64(id), {int(0.5 / deletes)}) = 0, 'D', 'U'), 'I')"
            f" AS op;1000000000L * ({{number}} + 1) + id AS lsn",
        )
        start = start_rows(spark, table_rows)
        feed = {"operation_column": "op", "sequence_by": "lsn"}
        return Job(
            start.selectExpr("*", "'I' AS op", "id AS lsn"),
            batches.file,
            {"strategy": "cdc", "unique_key": "id", "cdc": feed},
            {HAND: by_hand.cdc},
            hand_start=start.selectExpr("*", "id AS lsn"),
        )

    return make


def snapshot(table_rows: int, partitions: int):
    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        start = start_rows(spark, table_rows).selectExpr(
            "*", f"CAST(id DIV {table_rows // partitions} AS int) AS day"
        )

        def file(number: int) -> Path:
            one = start.where(f"day = {number}").select("id")
            return one_file(
                rows(one, number + 1).selectExpr("*", f"{number} AS day"), place / f"batch-{number}"
            )

        return Job(
            start,
            file,
            {"strategy": "snapshot", "partition_column": "day"},
            {BARE_REPLACE: by_hand.replace_day},
            partition_by=("day",),
        )

    return make


def append(batch_rows: int):
    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        batches = Batches(spark, place, 0, batch_rows, known=0)
        return Job(
            start_rows(spark, 1000).where("id < 0"),
            batches.file,
            {"strategy": "append_only"},
            {BARE_APPEND: by_hand.append},
        )

    return make


def bounded(
    name: str, make: Callable[[Bench, Path], Job], *bounds: tuple[str, float]
) -> tuple[Scenario, Any]:
    return Scenario(name, OURS, tuple(Bound(against, at_most) for against, at_most in bounds)), make


SCENARIOS = [
    bounded("upsert 1k rows into 100k", upsert(100_000, 1_000), (HAND, 1.0)),
    bounded("upsert 100k (half new) into 2M, scattered keys", upsert(2_000_000, 100_000), (HAND, 0.6)),
    bounded("the same, recent keys", upsert(2_000_000, 100_000, recent=True), (HAND, 0.5)),
    bounded("the same rows again in a new file", delivered_again(2_000_000, 100_000), (HAND, 0.6)),
    bounded("the same file again", same_file(2_000_000, 100_000), (HAND, 0.05)),
    bounded("full_merge 2M against 2M, 1 % changed", full_merge(2_000_000, 0.01), (HAND, 0.6)),
    bounded("scd2, 100k with 20 % changed into 2M", scd2(2_000_000, 100_000, 0.2), (HAND, 0.7)),
    bounded("cdc, 100k events with 10 % deletes into 2M", cdc(2_000_000, 100_000, 0.1), (HAND, 0.8)),
    bounded("snapshot, 1 of 30 partitions of 2M", snapshot(2_000_000, 30), (BARE_REPLACE, 1.15)),
    bounded("append 2M", append(2_000_000), (BARE_APPEND, 1.15)),
    bounded("append 1k, the fixed cost of a load", append(1_000)),
]

LARGE = [
    bounded("upsert 100k into 10M, scattered keys", upsert(10_000_000, 100_000), (HAND, 0.5)),
    bounded("only new keys, 100k into 10M", upsert(10_000_000, 100_000, known=0), (HAND, 0.8)),
    bounded("upsert 100k into 30M, scattered keys", upsert(30_000_000, 100_000), (HAND, 0.35)),
]

# Small loads of every kind: what the sides share is compiled before anything is measured.
WARMING = [
    bounded("upsert", upsert(20_000, 1_000)),
    bounded("full_merge", full_merge(20_000, 0.01)),
    bounded("scd2", scd2(20_000, 1_000, 0.2)),
    bounded("cdc", cdc(20_000, 1_000, 0.1)),
    bounded("snapshot", snapshot(20_000, 30)),
    bounded("append", append(1_000)),
]
