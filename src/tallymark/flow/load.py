"""Steps 3 to 7 for one batch: read, check, plan, apply with marker, record."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import assert_never

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.checks.conform import Conformed, FeedRules, conform
from tallymark.checks.split import Checked, fits_driver, split
from tallymark.destinations.contract import (
    ArrowRows,
    Commit,
    Incoming,
    PreparedLoad,
    SparkRows,
    refuse_gaps,
)
from tallymark.errors import (
    CheckError,
    CommitUnknown,
    CountsDoNotBalance,
    FileChanged,
    GuardTripped,
    SourceError,
    TallymarkError,
)
from tallymark.flow.bad_rows import judge
from tallymark.flow.job import Job
from tallymark.flow.quality import check_gates, gate_warnings, refuse_failed
from tallymark.flow.transform.query import transformed, watermark_after
from tallymark.model.batch import Batch, Content, Files, FrameRows, QuarantinedRows, QueryResult
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER, Merge, Plan
from tallymark.model.receipt import Counts, Marker, Receipt
from tallymark.model.report import Step
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import (
    INGESTED_AT,
    JSON_TYPE,
    PROVENANCE_COLUMNS,
    SOURCE_FILE,
    SOURCE_FILE_HASH,
    Column,
    TableShape,
    find_column,
    is_provenance,
)
from tallymark.model.types import exact_timestamp, literal
from tallymark.sources.debezium import unwrap
from tallymark.sources.formats import COLUMNAR, format_of
from tallymark.sources.new_files import recheck
from tallymark.sources.read_failures import unreadable_from
from tallymark.sources.read_files import CORRUPT, SourceFrame, read_files
from tallymark.spark.frames import planned_for
from tallymark.strategies.build import build_plan, effective_settings
from tallymark.strategies.scd2 import history_of, keeps_history

log = logging.getLogger(__name__)

_TOO_LARGE_TO_KEEP = 1 << 20  # bytes
ROWS_AT_ONCE = 100_000  # of rows that go from the driver into the destination
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: P0001|$)", re.DOTALL)  # by raise_error()


def load_batch(job: Job, batch: Batch, fence: int, ensure_lease: Callable[[], None]) -> Receipt:
    """Nothing before the commit leaves a trace in the table, and nothing after it can undo it."""
    attempt = CommitAttempt(job.task.table)
    try:
        return _load(job, batch, fence, ensure_lease, attempt)
    except Exception as error:
        return attempt.outcome(error)


@dataclass
class CommitAttempt:
    """What is known of one commit. Whatever goes wrong afterwards, while rows are let go and connections are
    closed, must not make a committed load look like a failed one, nor an unknown one."""

    table: str
    error: BaseException | None = None
    receipt: Receipt | None = None
    _has_begun: bool = False

    def make(self, commit: Callable[[], Commit]) -> Commit:
        """Raises CommitUnknown for what the destination does not explain."""
        self._has_begun = True
        try:
            return commit()
        except Exception as error:
            self.error = error if isinstance(error, TallymarkError) else self._unknown(error)
            raise self.error from error.__cause__ if self.error is error else error
        except BaseException as error:  # such as the user's Ctrl-C
            self.error = error
            raise

    def outcome(self, error: Exception) -> Receipt:
        """Of a load that was ended by this error."""
        if not self._has_begun or error is self.error:
            raise error
        log.warning("%s: after the commit: %s", self.table, error, exc_info=error)
        if self.receipt is not None:
            told = f"the load is committed, but not everything could be cleaned up after it: {error}"
            return replace(self.receipt, warnings=(*self.receipt.warnings, told))
        raise self.error or self._unknown(error) from error

    def _unknown(self, error: BaseException) -> CommitUnknown:
        told = str(error).strip() or type(error).__name__
        return CommitUnknown(
            f"{self.table}: whether the load was committed is not known: {told.splitlines()[0][:500]}",
            hint="run again: the marker shows whether it was committed",
        )


def _load(
    job: Job, batch: Batch, fence: int, ensure_lease: Callable[[], None], attempt: CommitAttempt
) -> Receipt:
    started = time.monotonic()
    with prepared_batch(job, batch) as (checked, plan, prepared):
        counts = balanced(prepared.counts, checked)
        warnings = warnings_of(plan, prepared)
        _refuse_idle_replay(batch, counts)
        refuse_deletes(plan, prepared, allowed=job.task.allow_deletes)
        watermark = watermark_after(job, batch, checked)
        quality = check_gates(job, plan, prepared)
        refuse_failed(plan.table, quality)
        warnings += gate_warnings(plan.table, quality)
        job.stop_if_cancelled()
        job.quarantine.write(batch, fence, checked)
        recheck(batch.files_read, job.task.root, lambda: job.spark)
        ensure_lease()
        job.tell(Step.APPLY, f"writing {counts.changes} changes")
        strategy = str(plan.settings.strategy)
        marker = Marker.of(batch, fence, strategy, counts, unique_by=plan.unique_by, watermark=watermark)
        commit = attempt.make(lambda: prepared.commit(marker))
        attempt.receipt = Receipt(
            batch_id=batch.id,
            pipeline=batch.pipeline,
            table=job.task.table,
            strategy=strategy,
            counts=counts,
            version=commit.version,
            sequence=batch.sequence,
            committed_at=commit.committed_at,
            warnings=warnings + ((commit.disagreement,) if commit.disagreement else ()),
            way=commit.method,
            watermark=watermark,
            quality=quality,
        )
        warnings = attempt.receipt.warnings + _changed_meanwhile(job, batch, plan)
    return replace(attempt.receipt, warnings=warnings, seconds=time.monotonic() - started)


@contextmanager
def prepared_batch(
    job: Job, batch: Batch, *, for_commit: bool = True
) -> Iterator[tuple[Checked, Plan, PreparedLoad]]:
    """Read, check and plan: what `plan` on the command line shows, and what a load then commits."""
    with _telling_spark_errors(job, batch), ExitStack() as inputs:
        job.tell(Step.READ, _reading(batch))
        current = job.target.shape()
        rows = _conformed(job, batch, read_batch(job, batch, inputs), current)
        job.tell(Step.CHECK, "checking rows")
        keys = job.task.settings.unique_key
        collect = _can_collect(job, batch, rows.columns)
        with (
            planned_for(job.spark, size_bytes=_size(batch)),
            split(
                rows,
                job.task.limits,
                batch.members,
                keys,
                collect=collect,
                keep=not _is_read_again(job, batch),
            ) as checked,
        ):
            job.tell(Step.PLAN, f"planning {checked.total} rows")
            plan = build_plan(
                job.task.table,
                job.task.settings,
                _incoming_columns(job, rows),
                current,
                as_of=batch.as_of,
                table_properties=job.destination.table_properties,
                rebuild=_is_refresh(batch),
                key_ranges=checked.key_ranges,
            )
            refuse_gaps(job.destination.capabilities, plan)
            incoming = _incoming_rows(batch, plan, rows, checked)
            with job.target.prepare(plan, incoming, for_commit=for_commit) as prepared:
                yield checked, plan, prepared


def _is_read_again(job: Job, batch: Batch) -> bool:
    """Large files of columns are faster to read twice than to keep. Labels and stages are made of them before
    the files are checked once more (`recheck`); only what goes into the table unchanged is read by the commit
    itself, so those files are checked again after it."""
    match batch.contents:
        case Files(files=files):
            large = sum(file.size for file in files) >= _TOO_LARGE_TO_KEEP
            return large and format_of(job.task.files, files) in COLUMNAR
        case QueryResult() | FrameRows() | QuarantinedRows():
            return False
        case _:
            assert_never(batch.contents)


def _is_refresh(batch: Batch) -> bool:
    return isinstance(batch.contents, QueryResult) and batch.contents.pin.refresh


def _size(batch: Batch) -> int | None:
    """In bytes; None if the size is unknown."""
    contents = batch.contents
    return sum(file.size for file in contents.files) if isinstance(contents, Files) else None


def _reading(batch: Batch) -> str:
    match batch.contents:
        case Files(files=files):
            return "reading " + ("1 file" if len(files) == 1 else f"{len(files)} files")
        case QueryResult():
            return "running the query"
        case FrameRows():
            return "reading the DataFrame"
        case QuarantinedRows(rows=rows):
            return f"reading {rows} quarantined rows"
        case _:
            assert_never(batch.contents)


def read_batch(job: Job, batch: Batch, inputs: ExitStack) -> SourceFrame:
    """What must stay open until the commit is closed by `inputs`."""
    match batch.contents:
        case Files(files=files):
            # The rules are for the rows, not for the envelope around them.
            rules = () if job.task.envelope else job.task.rules
            return _unwrapped(job, read_files(job.spark, job.task.files, rules, files, job.task.root))
        case QuarantinedRows(batch_id=batch_id):
            judged = judge(job.ledger, batch.pipeline, job.quarantine.attempts(batch.pipeline))
            replay = job.quarantine.replay_frame(batch.pipeline, judged.of_batch(batch_id))
            return SourceFrame(replay.frame, replay.columns, ())
        case FrameRows() as content:
            if job.frame is None:
                raise SourceError(f"batch {batch.id} came from a DataFrame, which only its caller has")
            return _unwrapped(job, _in_order(job.frame(job.spark), content))
        case QueryResult(pin=pin) as content:
            assert job.task.query is not None  # noqa: S101  only transforms have results
            result = transformed(job, job.task.query, pin, batch.as_of, inputs)
            return _unwrapped(job, _in_order(result.frame, content))
        case _:
            assert_never(batch.contents)


def _unwrapped(job: Job, read: SourceFrame) -> SourceFrame:
    return unwrap(read, job.task.envelope) if job.task.envelope else read


def _in_order(frame: DataFrame, content: Content) -> SourceFrame:
    """The rows of a DataFrame are in no file; their order is the one in which Spark returns them."""
    columns = tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema.fields)
    technical = frame.selectExpr(
        "*",
        f"0 AS {FILE_ORDER}",
        f"0L AS {ROW_BLOCK}",
        f"monotonically_increasing_id() AS {ROW_ORDER}",
        f"CAST(NULL AS string) AS {CORRUPT}",
        f"{literal(content.content_hash)} AS {SOURCE_FILE_HASH}",
        f"{literal(content.name)} AS {SOURCE_FILE}",
    )
    return SourceFrame(technical, columns, ())


def balanced(planned: Counts, checked: Checked) -> Counts:
    """Every row that was read is planned or rejected, or nothing is written. The destination has checked that
    the plan's own counts add up."""
    if planned.total + checked.rejected != checked.total:
        raise CountsDoNotBalance(
            f"{checked.total} rows were read, but {planned.total} were planned and {checked.rejected} "
            "rejected; nothing was written",
            facts={"read": checked.total, "planned": planned.total, "rejected": checked.rejected},
        )
    return Counts(**{**planned.as_dict(), "rejected": checked.rejected, "total": checked.total})


def _refuse_idle_replay(batch: Batch, counts: Counts) -> None:
    """Otherwise every replay of hopeless rows would move them to a new batch of the quarantine."""
    if isinstance(batch.contents, QuarantinedRows) and counts.rejected == counts.total:
        raise CheckError(
            f"none of the {counts.total} quarantined rows of batch {batch.contents.batch_id} is good now",
            hint="change the pipeline's `columns` so that they fit, or `tallymark quarantine drop` them",
        )


def warnings_of(plan: Plan, prepared: PreparedLoad) -> tuple[str, ...]:
    found, warnings = prepared.duplicates, (*plan.warnings, *prepared.warnings)
    if found is None:
        return warnings
    keys = [", ".join(f"{name}={value}" for name, value in key.items()) for key in found.sample]
    more = ["…"] if found.keys > len(keys) else []
    return (
        *warnings,
        f"{plan.table}: {found.rows} duplicate rows of {found.keys} keys are removed "
        f"({'; '.join([*keys, *more])})",
    )


def _changed_meanwhile(job: Job, batch: Batch, plan: Plan) -> tuple[str, ...]:
    """Only where the commit itself has read the files: labels were made before."""
    if isinstance(plan.shape, Merge) or not _is_read_again(job, batch):
        return ()
    try:
        recheck(batch.files_read, job.task.root, lambda: job.spark)
    except FileChanged as changed:
        return (f"{changed.path}: changed while its rows were written: look at them, or restore the table",)
    except Exception as error:  # the rows are committed: not to know must not look like a failed load
        return (f"whether files changed while their rows were written is not known: {error}",)
    return ()


def refuse_deletes(plan: Plan, prepared: PreparedLoad, *, allowed: bool) -> None:
    message = tripped_guard(plan, prepared)
    if message and not allowed:
        raise GuardTripped(
            message,
            hint="if this is meant, run once with --allow-deletes"
            + (f"; {plan.warnings[0]}" if plan.warnings else ""),
            facts={"deleted": _deleted(prepared), "table_rows": prepared.table_rows},
        )


def tripped_guard(plan: Plan, prepared: PreparedLoad) -> str:
    limit, deleted, rows = plan.max_delete_fraction, _deleted(prepared), prepared.table_rows
    if limit is None or rows == 0 or deleted / rows <= limit:
        return ""
    return (
        f"{plan.table}: the load would delete {deleted} of {rows} rows ({deleted / rows:.0%}), "
        f"more than max_delete_fraction {limit:g} allows"
    )


def _deleted(prepared: PreparedLoad) -> int:
    """Without duplicates that are repaired: of them, one row is left."""
    return prepared.counts.deleted - (prepared.duplicates.rows if prepared.duplicates else 0)


def _conformed(job: Job, batch: Batch, source: SourceFrame, current: TableShape | None) -> Conformed:
    settings = effective_settings(job.task.settings).settings
    dated = settings.scd2.effective_from if settings.strategy is Strategy.SCD2 else None
    rows = conform(
        source.frame,
        source.columns,
        job.task.rules,
        _to_conform_to(settings, current),
        required=(dated,) if dated else (),
        unique_key=settings.unique_key,
        feed=FeedRules.of(settings),
    )
    # Without `provenance` these columns are only not written: bad rows are told by their file all the same.
    ingested_at = F.expr(f"CAST({exact_timestamp(batch.as_of)} AS timestamp)")
    frame = rows.frame.withColumn(INGESTED_AT, ingested_at)
    return Conformed(frame, rows.columns, rows.source)


def _to_conform_to(settings: MergeSettings, current: TableShape | None) -> TableShape | None:
    """The table's columns that the batch's must fit: neither those that the load computes, nor nested
    values kept as JSON, which have no Spark type of their own."""
    if current is None:
        return None
    computed: set[str] = set()
    if keeps_history(settings):
        history = history_of(settings)
        computed = {name.casefold() for name in history.own_columns} - {(history.effective or "").casefold()}
    fitting = tuple(c for c in current.columns if c.type != JSON_TYPE and c.name.casefold() not in computed)
    return replace(current, columns=fitting)


def _incoming_columns(job: Job, rows: Conformed) -> tuple[Column, ...]:
    """In the types as which the destination keeps them."""
    given = rows.columns + (PROVENANCE_COLUMNS if job.task.provenance else ())
    return tuple(replace(column, type=job.destination.column_type(column.type)) for column in given)


@contextmanager
def _telling_spark_errors(job: Job, batch: Batch) -> Iterator[None]:
    """Spark reads lazily: a broken file shows up wherever the rows are first needed."""
    try:
        yield
    except TallymarkError:
        raise
    except Exception as error:
        named = unreadable_from(error, batch.names)
        if named is not None:
            raise named from error
        query = job.task.query
        if query is not None and (raised := _RAISED.search(str(error))):
            raise SourceError(
                f"{query.transform.file}: {raised[1][:500]}",
                hint="nothing was written; repair what it reads, then run again",
            ) from error
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        what = f"batch {batch.id}" if query is None else query.transform.file
        raise SourceError(
            f"{what}: cannot be read or planned: {first[:500]}", hint="see the Spark log for the whole error"
        ) from error


# Rows that are on the driver already go from there into the destination, not back through Spark


def _can_collect(job: Job, batch: Batch, columns: Iterable[Column]) -> bool:
    """Only files: they can be read again if rows turn out to be bad, and are the same then. Only values that
    are staged as they are: others, such as nested ones that become JSON, Spark converts."""
    if not isinstance(batch.contents, Files) or not fits_driver(batch.contents.files):
        return False
    as_they_are = (_is_flat(c) and job.destination.column_type(c.type) == c.type for c in columns)
    return job.destination.capabilities.takes_arrow and all(as_they_are)


def _incoming_rows(batch: Batch, plan: Plan, rows: Conformed, checked: Checked) -> Incoming:
    count = checked.total - checked.rejected
    if checked.collected is not None and _fits(plan, rows):
        return ArrowRows(_parts(checked.collected, batch, plan), count)
    return SparkRows(checked.good, count)


def _fits(plan: Plan, rows: Conformed) -> bool:
    """A table that is already there may have other types than its rows."""
    known = (*rows.columns, *PROVENANCE_COLUMNS)
    found = [(column, find_column(known, column.name)) for column in plan.given]
    return all(own is not None and own.type == column.type and _is_flat(own) for column, own in found)


def _is_flat(column: Column) -> bool:
    return "<" not in column.type


def _parts(rows: pa.Table, batch: Batch, plan: Plan) -> Iterator[pa.Table]:
    """Provenance is the same for all rows of a file, so it is added here, some rows at a time."""
    added = [column.name.casefold() for column in plan.given if is_provenance(column.name)]
    for start in range(0, rows.num_rows, ROWS_AT_ONCE):
        some = rows.slice(start, ROWS_AT_ONCE)
        for name in added:
            some = some.append_column(name, _provenance(name, some[FILE_ORDER], batch))
        yield some


def _provenance(name: str, file_orders: pa.ChunkedArray, batch: Batch) -> pa.Array | pa.ChunkedArray:
    if name == INGESTED_AT:
        return pa.repeat(pa.scalar(batch.as_of, pa.timestamp("us", "UTC")), len(file_orders))
    of_files = [
        content.content_hash if name == SOURCE_FILE_HASH else content.name for content in batch.members
    ]
    return pa.array(of_files, pa.string()).take(file_orders)
