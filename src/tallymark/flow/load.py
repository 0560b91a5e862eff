"""Steps 3 to 7 for one batch: read, check, plan, apply with marker, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import functions as F

from tallymark.checks.conform import Conformed, conform
from tallymark.checks.split import Checked, split
from tallymark.destinations.contract import Prepared
from tallymark.errors import CheckError, GuardTripped, SourceError, TallymarkError
from tallymark.flow.job import Job
from tallymark.model.batch import Batch, BatchKind
from tallymark.model.marker import Marker
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER, Plan
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.report import Step
from tallymark.model.table import (
    INGESTED_AT,
    PROVENANCE_COLUMNS,
    SOURCE_FILE,
    SOURCE_FILE_HASH,
    Column,
    TableShape,
)
from tallymark.sources.discover import recheck
from tallymark.sources.read import CORRUPT, SourceFrame, read_files, unreadable_from
from tallymark.strategies.build import build_plan

REPLAY_PREFIX = "quarantine:"


def load_batch(job: Job, batch: Batch, fence: int, ensure_lease: Callable[[], None]) -> Receipt:
    """Everything before the commit is certain to leave no trace in the table."""
    started = time.monotonic()
    with prepared_batch(job, batch) as (checked, plan, prepared):
        counts = balanced(prepared.counts, checked)
        _refuse_idle_replay(batch, counts)
        refuse_deletes(plan, prepared, allowed=job.task.allow_deletes)
        job.quarantine.write(batch, checked)
        if batch.kind is BatchKind.FILES:
            recheck(batch.files, job.task.root, lambda: job.spark)
        ensure_lease()
        job.tell(Step.APPLY, f"writing {counts.changes} changes")
        commit = prepared.commit(_marker(batch, fence, plan, counts))
    warnings = plan.warnings + ((commit.disagreement,) if commit.disagreement else ())
    return Receipt(
        batch_id=batch.id,
        pipeline=batch.pipeline,
        table=job.task.table,
        strategy=str(plan.settings.strategy),
        counts=counts,
        version=commit.version,
        sequence=batch.sequence,
        committed_at=commit.committed_at,
        warnings=warnings,
        way=commit.way,
        seconds=time.monotonic() - started,
    )


@contextmanager
def prepared_batch(job: Job, batch: Batch) -> Iterator[tuple[Checked, Plan, Prepared]]:
    """Read, check and plan: what `plan` on the command line shows, and what a load then commits."""
    with _telling_spark_errors(batch):
        job.tell(Step.READ, "reading " + ("1 file" if len(batch.files) == 1 else f"{len(batch.files)} files"))
        current = job.destination.inspect(job.task.table)
        rows = _conformed(job, batch, read_batch(job, batch), current)
        job.tell(Step.CHECK, "checking rows")
        with split(rows, job.task.limits, batch.files) as checked:
            job.tell(Step.PLAN, f"planning {checked.total} rows")
            plan = build_plan(
                job.task.table,
                job.task.settings,
                _incoming_columns(job, rows),
                current,
                table_properties=job.destination.table_properties,
            )
            with job.destination.prepare(plan, checked.good) as prepared:
                yield checked, plan, prepared


def read_batch(job: Job, batch: Batch) -> SourceFrame:
    match batch.kind:
        case BatchKind.FILES:
            return read_files(job.spark, job.task.source, job.task.rules, batch.files, job.task.root)
        case BatchKind.REPLAY:
            replay = job.quarantine.replay_frame(job.task.pipeline, replayed_batch(batch))
            return SourceFrame(replay.frame, replay.columns, batch.files)
        case BatchKind.FRAME:
            return _read_frame(job, batch)


def replayed_batch(batch: Batch) -> str:
    return batch.files[0].path.removeprefix(REPLAY_PREFIX)


def _read_frame(job: Job, batch: Batch) -> SourceFrame:
    """The rows of a DataFrame are in no file; their order is the one in which Spark gives them."""
    if job.frame is None:
        raise SourceError(f"batch {batch.id} came from a DataFrame, which only its caller has")
    frame = job.frame(job.spark)
    columns = tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema.fields)
    technical = frame.select(
        "*",
        F.lit(0).alias(FILE_ORDER),
        F.lit(0).cast("bigint").alias(ROW_BLOCK),
        F.monotonically_increasing_id().alias(ROW_ORDER),
        F.lit(None).cast("string").alias(CORRUPT),
        F.lit(batch.files[0].content_hash).alias(SOURCE_FILE_HASH),
        F.lit(batch.files[0].path).alias(SOURCE_FILE),
    )
    return SourceFrame(technical, columns, batch.files)


def balanced(planned: Counts, checked: Checked) -> Counts:
    """Every row that was read is accounted for, or nothing is written."""
    counted = planned.inserted + planned.updated + planned.unchanged + planned.skipped + checked.rejected
    if counted != checked.total or planned.total + checked.rejected != checked.total:
        raise CheckError(
            f"the counts do not balance: {checked.total} rows were read, {counted} are accounted for "
            f"({planned.as_dict()}, {checked.rejected} rejected); nothing was written",
            hint="this is a bug in Tallymark: please report it with the output of `tallymark plan`",
        )
    return Counts(**{**planned.as_dict(), "rejected": checked.rejected, "total": checked.total})


def _refuse_idle_replay(batch: Batch, counts: Counts) -> None:
    """Otherwise every replay of hopeless rows would move them to a new batch of the quarantine."""
    if batch.kind is BatchKind.REPLAY and counts.rejected == counts.total:
        raise CheckError(
            f"none of the {counts.total} quarantined rows of batch {replayed_batch(batch)} is good now",
            hint="change the pipeline's `columns` so that they fit, or `tallymark quarantine drop` them",
        )


def refuse_deletes(plan: Plan, prepared: Prepared, *, allowed: bool) -> None:
    message = tripped_guard(plan, prepared)
    if message and not allowed:
        raise GuardTripped(
            message,
            hint="if this is meant, run once with --allow-deletes"
            + (f"; {plan.warnings[0]}" if plan.warnings else ""),
            facts={"deleted": prepared.counts.deleted, "table_rows": prepared.table_rows},
        )


def tripped_guard(plan: Plan, prepared: Prepared) -> str:
    limit, deleted, rows = plan.max_delete_fraction, prepared.counts.deleted, prepared.table_rows
    if limit is None or rows == 0 or deleted / rows <= limit:
        return ""
    return (
        f"{plan.table}: the load would delete {deleted} of {rows} rows ({deleted / rows:.0%}), "
        f"more than max_delete_fraction {limit:g} allows"
    )


def _conformed(job: Job, batch: Batch, source: SourceFrame, current: TableShape | None) -> Conformed:
    rows = conform(
        source.frame,
        source.columns,
        job.task.rules,
        current,
        required=(),
        unique_key=job.task.settings.unique_key,
    )
    # Without `provenance` these columns are only not written: bad rows are told by their file all the same.
    frame = rows.frame.withColumn(INGESTED_AT, F.lit(batch.as_of).cast("timestamp"))
    return Conformed(frame, rows.columns, rows.source)


def _incoming_columns(job: Job, rows: Conformed) -> tuple[Column, ...]:
    return rows.columns + (PROVENANCE_COLUMNS if job.task.provenance else ())


def _marker(batch: Batch, fence: int, plan: Plan, counts: Counts) -> Marker:
    return Marker(
        batch_id=batch.id,
        pipeline=batch.pipeline,
        table_key=batch.table_key,
        sequence=batch.sequence,
        fence=fence,
        content_hashes=batch.content_hashes,
        as_of=batch.as_of,
        strategy=str(plan.settings.strategy),
        counts=counts,
    )


@contextmanager
def _telling_spark_errors(batch: Batch) -> Iterator[None]:
    """Spark reads lazily: a broken file shows up wherever the rows are first needed."""
    try:
        yield
    except TallymarkError:
        raise
    except Exception as error:
        named = unreadable_from(error, batch.files)
        if named is not None:
            raise named from error
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SourceError(
            f"batch {batch.id} cannot be read or planned: {first[:500]}",
            hint="see the Spark log for the whole error",
        ) from error
