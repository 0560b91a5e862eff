"""Loads into Delta tables, against what people write by hand on the same Spark.

Each job is written by hand once on Spark's and Delta's default settings and once on Tallymark's own, and in
the best known way on Tallymark's own. Only the last two are fair: they differ from Tallymark in nothing else.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import by_hand
import tallymark as tm
from by_hand import HandTable
from fresh_process import LOADS, FreshSide, FreshTimes, measure_fresh
from rows import Batches, one_file, rows, start_rows
from spark_engine import Engine
from tallymark.spark.frames import planned_for
from timing import WARM_UPS, Bound, Result, Scenario, Side, in_turn

OURS = "tallymark"
ON_DEFAULTS, ON_OURS = ", default settings", ", our settings"
HAND, REPLACE, APPEND = "hand MERGE", "bare replaceWhere", "bare append"
RANGE, REPLACING, OVERWRITE, CHANGED = "MERGE in range", "replaceUsing", "bare overwrite", "MERGE of changes"
_DIGEST = "count(*) AS n", "sum(amount_cents) AS amounts", "sum(hash(id, note, updated_at)) AS contents"


@dataclass(frozen=True)
class Job:
    """What a scenario loads. `file(n)` makes the n-th batch; hand-written sides by name."""

    start: DataFrame
    file: Callable[[int], Path]
    settings: Mapping[str, Any]
    hand: Mapping[str, by_hand.Load]  # the plain way: on default settings and on ours
    recipes: Mapping[str, by_hand.Load] = field(default_factory=dict)  # on our settings
    hand_start: DataFrame | None = None  # where it has other columns
    partition_by: tuple[str, ...] = ()
    digest: tuple[str, ...] = _DIGEST
    start_settings: Mapping[str, Any] = field(default_factory=dict)


class Bench:
    """`memory` is given if processes of their own are measured too."""

    def __init__(self, engine: Engine, folder: Path, repetitions: int, memory: str = ""):
        self.engine = engine
        self.folder = folder
        self.repetitions = repetitions
        self._memory = memory

    def measure(self, scenario: Scenario, make: Callable[[Bench, Path], Job]) -> Result:
        place = self.folder / "scenario"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        job = make(self, place)
        files = [job.file(number) for number in range(max(WARM_UPS + self.repetitions, LOADS))]
        sides = [self._ours(job, place, files)]
        fresh = [
            FreshSide(OURS, place / "tables" / "ours", place / "copies" / "ours", "", True, job.settings)
        ]
        for name, session, load in sides_by_hand(job, self.engine):
            table = HandTable(session, place / "tables" / re.sub(r"\W+", "-", name))
            sides.append(self._by_hand(name, load, job, table, files))
            copy, on_ours = place / "copies" / table.path.name, name.endswith(ON_OURS)
            fresh.append(FreshSide(name, table.path, copy, load.__name__, on_ours, {}))
        if self._memory:
            for side in fresh:
                shutil.copytree(side.table, side.start)
        timed = in_turn(sides, self.repetitions, self.engine.jobs_so_far)
        found = self._fresh(fresh, files, job) if self._memory else {}
        shutil.rmtree(place, ignore_errors=True)
        fair = tuple(side.name for side in fresh[1:] if side.on_our_settings)
        return Result(replace(scenario, fair=fair), timed, fresh=found)

    def _fresh(self, sides: list[FreshSide], files: list[Path], job: Job) -> dict[str, FreshTimes]:
        sides = [replace(side, settings={"provenance": False, **side.settings}) for side in sides]
        return measure_fresh(
            sides, files, self.repetitions, self._memory, lambda table: self._digest(table, job.digest)
        )

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

    def _by_hand(self, name: str, load: by_hand.Load, job: Job, table: HandTable, files: list[Path]) -> Side:
        table.create(job.hand_start or job.start, job.partition_by)
        write = planned_as_ours(load) if name.endswith(ON_OURS) else load
        return Side(
            name,
            lambda number: write(table, files[number]),
            lambda: self._digest(table.path, job.digest),
        )

    def _digest(self, table: Path, digest: tuple[str, ...]) -> tuple[object, ...]:
        return tuple(self.engine.ours.read.format("delta").load(str(table)).selectExpr(*digest).collect()[0])


def sides_by_hand(job: Job, engine: Engine) -> Iterator[tuple[str, SparkSession, by_hand.Load]]:
    for name, load in job.hand.items():
        yield f"{name}{ON_DEFAULTS}", engine.by_hand, load
    for name, load in {**job.hand, **job.recipes}.items():
        yield f"{name}{ON_OURS}", engine.on_our_settings(), load


def planned_as_ours(load: by_hand.Load) -> by_hand.Load:
    """Tallymark turns adaptive execution off for small batches."""

    def planned(table: HandTable, file: Path) -> None:
        with planned_for(table.spark, size_bytes=file.stat().st_size):
            load(table, file)

    return planned


MakeJob = Callable[[Bench, Path], Job]


def upsert(
    table_rows: int, batch_rows: int, *, recent: bool = False, known: float = 0.5, columns: int = 8
) -> MakeJob:
    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        batches = Batches(spark, place, table_rows, batch_rows, recent, known, columns)
        return Job(
            start_rows(spark, table_rows, columns),
            batches.file,
            {"strategy": "upsert", "unique_key": "id"},
            {HAND: by_hand.upsert},
            {RANGE: by_hand.upsert_in_range, REPLACING: by_hand.upsert_replacing},
        )

    return make


def delivered_again(table_rows: int, batch_rows: int) -> MakeJob:
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
        return replace(job, file=file)

    return make


def same_file(table_rows: int, batch_rows: int) -> MakeJob:
    def make(bench: Bench, place: Path) -> Job:
        first = Batches(bench.engine.ours, place, table_rows, batch_rows).file(0)
        job = upsert(table_rows, batch_rows)(bench, place)
        return replace(job, file=lambda _: first)

    return make


def full_merge(table_rows: int, changed: float) -> MakeJob:
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
            {HAND: by_hand.full_merge},
            {CHANGED: by_hand.full_merge_changed, OVERWRITE: by_hand.overwrite},
        )

    return make


def scd2(table_rows: int, batch_rows: int, changed: float) -> MakeJob:
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


def cdc(table_rows: int, batch_rows: int, deletes: float) -> MakeJob:
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


def snapshot(table_rows: int, partitions: int) -> MakeJob:
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
            {REPLACE: by_hand.replace_day},
            partition_by=("day",),
        )

    return make


def append(batch_rows: int) -> MakeJob:
    def make(bench: Bench, place: Path) -> Job:
        spark = bench.engine.ours
        batches = Batches(spark, place, 0, batch_rows, known=0)
        return Job(
            start_rows(spark, 1000).where("id < 0"),
            batches.file,
            {"strategy": "append_only"},
            {APPEND: by_hand.append},
        )

    return make


def bounded(name: str, make: MakeJob, *bounds: tuple[str, float]) -> tuple[Scenario, Any]:
    limits = tuple(Bound(f"{against}{ON_DEFAULTS}", at_most) for against, at_most in bounds)
    return Scenario(name, OURS, limits), make


SCENARIOS = [
    bounded("upsert 1k rows into 100k", upsert(100_000, 1_000), (HAND, 1.0)),
    bounded("upsert 100k (half new) into 2M, scattered keys", upsert(2_000_000, 100_000), (HAND, 0.6)),
    bounded("the same, recent keys", upsert(2_000_000, 100_000, recent=True), (HAND, 0.5)),
    bounded("the same rows again in a new file", delivered_again(2_000_000, 100_000), (HAND, 0.6)),
    bounded("the same file again", same_file(2_000_000, 100_000), (HAND, 0.05)),
    bounded("full_merge 2M against 2M, 1 % changed", full_merge(2_000_000, 0.01), (HAND, 0.6)),
    bounded("scd2, 100k with 20 % changed into 2M", scd2(2_000_000, 100_000, 0.2), (HAND, 0.7)),
    bounded("cdc, 100k events with 10 % deletes into 2M", cdc(2_000_000, 100_000, 0.1), (HAND, 0.8)),
    bounded("snapshot, 1 of 30 partitions of 2M", snapshot(2_000_000, 30), (REPLACE, 1.15)),
    bounded("append 2M", append(2_000_000), (APPEND, 1.15)),
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
