"""The same load as a library call: rows or files into one table, without a project, on the caller's session.

import tallymark as tm

receipt = tm.merge("landing/*.csv", "warehouse/silver/orders", strategy="upsert", unique_key="order_id")
tm.plan(frame, "warehouse/silver/orders", strategy="upsert", unique_key="order_id").show()

Each call has an empty ledger of its own. The marker in the table is what makes the load exactly once: a
content that the table holds is not applied again, whoever brings it.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TypedDict, Unpack, assert_never
from uuid import uuid4

from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from tallymark.config.combinations import faults
from tallymark.config.pipeline_file import BatchConfig, PipelineConfig, QuarantineConfig
from tallymark.config.yaml_file import key_text
from tallymark.destinations import registry
from tallymark.destinations.contract import Destination, TableMarkers
from tallymark.errors import ConfigError, Fenced, SourceError
from tallymark.flow.claim import Claim, claim_table, delivered_again, receipt_from_marker
from tallymark.flow.discover import Discovered, discover
from tallymark.flow.job import Connections, Job, RunContext, Task
from tallymark.flow.plan import explain_batch, explain_pipeline
from tallymark.flow.run import load_planning_again
from tallymark.flow.select import NamedDestination
from tallymark.ledger import temporary_ledger
from tallymark.model.batch import Batch, FrameRows
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.report import PlanReport
from tallymark.model.settings import RepeatedContent, Strategy
from tallymark.spark import Sessions
from tallymark.spark.launch_settings import SparkConfig, SparkNeeds
from tallymark.spark.sessions import active_session_kept

log = logging.getLogger(__name__)


class MergeOptions(TypedDict, total=False):
    """What `merge` and `plan` take beside source and target; the names are those of config.yaml."""

    strategy: str  # default upsert
    unique_key: str | Sequence[str]
    watermark_column: str
    partition_column: str
    dedup_order_by: str | Sequence[str]
    compare_columns: str | Sequence[str]
    skip_unchanged: bool  # default true: rows that are equal are not written
    schema_evolution: str  # add, ignore or fail
    on_target_duplicates: str  # repair or fail
    repeated_content: str  # skip, apply or fail; default: by strategy, as in config.yaml
    max_delete_fraction: float
    scd_valid_from: str
    scd_valid_to: str
    scd_current_flag: str
    scd_effective_from: str
    scd_close_absent: bool
    cdc: Mapping[str, object]  # as in config.yaml: operation_column, sequence_by, operations, …
    strict: bool  # default true: a missing unique_key is an error
    columns: Sequence[Mapping[str, object]]  # as in config.yaml: name, from, type, format, required
    format: str  # of files; default: from their names
    options: Mapping[str, str | int | float | bool]  # of Spark's reader
    provenance: bool  # default: for files yes, for a DataFrame no
    allow_deletes: bool


Target = Mapping[str, object] | NamedDestination  # as in tallymark.yaml, or a destination of a project

_CLAIMS = 3  # if another call takes over the table, this one claims it again


def merge(
    source: DataFrame | str | Path,
    target: str | Path,
    *,
    content_id: str | None = None,
    spark: SparkSession | None = None,
    destination: Target | None = None,
    **options: Unpack[MergeOptions],
) -> Receipt:
    """Merges a DataFrame, or files by path or glob, into a Delta table: a folder, a URL or a catalog name.
    With a `destination`, such as {"type": "sqlite", "path": "shop.db"} or the value of
    `Project.destination`, the target is the name of a table there.

    A file is applied once: files that the table holds already are left out. Where files are states, as for
    `full_refresh`, a call with files that the table held before its latest load brings that state back
    (`repeated_content`). A DataFrame is applied once if it has a `content_id`; without one, every call is a
    new content. Bad rows fail the call, and nothing
    is written. Runs on `spark`, else on the DataFrame's session, else on an embedded Spark.
    """
    rows = FrameRows.of(content_id or uuid4().hex)  # without an id, every call is a new content
    with _job(source, target, options, spark, destination) as job:
        for attempt in range(1, _CLAIMS + 1):
            try:
                return _merge_once(job, rows)
            except Fenced:
                if attempt == _CLAIMS:
                    raise
    raise AssertionError("unreachable")


def plan(
    source: DataFrame | str | Path,
    target: str | Path,
    *,
    samples: int = 10,
    spark: SparkSession | None = None,
    destination: Target | None = None,
    **options: Unpack[MergeOptions],
) -> PlanReport:
    """What the same call of `merge` would do, row by row. Nothing is written."""
    with _job(source, target, options, spark, destination) as job:
        if job.frame is None:
            found = discover(job)
            again = None if found.unreadable else _deliver_again(job, found)
            report = explain_pipeline(job, samples)
            return replace(report, warnings=again.warnings + report.warnings) if again else report
        rows = FrameRows.of(uuid4().hex)
        batch = Batch("plan", job.task.pipeline, job.table_key, rows, 0, job.now())
        return explain_batch(job, batch, 0, samples)


def _sessions(
    source: DataFrame | str | Path, spark: SparkSession | None, destination: Target | None
) -> Sessions:
    if isinstance(source, str | Path):
        theirs = spark or SparkSession.getActiveSession()
    else:
        theirs = spark or source.sparkSession
    match destination:
        case None:
            needs = registry.spark_needs()
        case NamedDestination():
            needs = registry.spark_needs([destination.config])
        case _:
            needs = registry.spark_needs([registry.parse_options(destination)])
    return _embedded(needs) if theirs is None else Sessions.of(theirs, needs)


_EMBEDDED: list[tuple[Sequence[SparkNeeds], Sessions]] = []


def _embedded(needs: Sequence[SparkNeeds]) -> Sessions:
    """One for all library calls of a process that need the same of it: starting Spark costs seconds."""
    for known, sessions in _EMBEDDED:
        if known == needs:
            return sessions
    made = Sessions(SparkConfig(), needs, home=Path(tempfile.mkdtemp(prefix="tallymark-")))
    _EMBEDDED.append((needs, made))
    return made


def _task(source: object, target: str | Path, options: MergeOptions, *, in_folder: bool) -> Task:
    """Arguments are checked by the same models as config.yaml. `in_folder`: a target with a slash is a path,
    not the name of a table in a database."""
    given = dict(options)
    unknown = sorted(given.keys() - MergeOptions.__annotations__.keys())
    if unknown:
        close = get_close_matches(unknown[0], MergeOptions.__annotations__, n=1)
        raise ConfigError(f"unknown argument {unknown[0]}", hint=f"did you mean {close[0]}?" if close else "")
    from_files = isinstance(source, str | Path)
    strategy = given.pop("strategy", Strategy.UPSERT)
    reader: dict[str, object] = {"files": str(source) if from_files else "frame"}
    reader |= {name: given.pop(name) for name in ("format", "options") if name in given}
    if "max_delete_fraction" in given:
        given["guards"] = {"max_delete_fraction": given.pop("max_delete_fraction")}
    allow_deletes = bool(given.pop("allow_deletes", False))
    try:
        config = PipelineConfig.model_validate(
            {"provenance": from_files, "strict": True, "merge_strategy": strategy, "source": reader, **given}
        )
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ConfigError(
            f"{where} {fault['input']!r}: {fault['msg']}", hint=_suggestion(where, fault["input"])
        ) from error
    for wrong in faults(config):
        raise ConfigError(f"{key_text(wrong.path)}: {wrong.message}", hint=wrong.hint)
    table = str(target)
    return Task(
        pipeline="library",
        table=str(Path(table).absolute()) if in_folder and "/" in table and "://" not in table else table,
        settings=config.merge_settings(),
        source=config.source,
        rules=tuple(config.columns),
        envelope=config.envelope_settings(),
        provenance=config.provenance,
        limits=QuarantineConfig(max_fraction=0, max_rows=0),
        batch=BatchConfig(max_files=2**31, max_bytes=2**62),
        root=Path.cwd(),
        allow_deletes=allow_deletes,
        repeated=config.repeated_content,
    )


def _suggestion(where: str, given: object) -> str:
    if where != "merge_strategy":
        return ""
    close = get_close_matches(str(given), list(Strategy), n=1)
    return f"did you mean {close[0]}?" if close else "one of " + ", ".join(Strategy)


def _merge_once(job: Job, rows: FrameRows) -> Receipt:
    with claim_table(job) as claim:
        warnings: tuple[str, ...] = ()
        if job.frame is not None:
            batch = _frame_batch(job, claim, rows)
        else:
            batch, warnings = _file_batch(job, claim)
        if isinstance(batch, Receipt):
            return replace(batch, warnings=warnings)
        receipt = load_planning_again(job, claim, batch)
        try:
            job.target.settle()
        except Exception as error:  # the rows are committed, and the next call copies the markers
            log.warning("%s: markers were not copied: %s", job.task.table, error)
        return replace(receipt, warnings=warnings + receipt.warnings)


def _frame_batch(job: Job, claim: Claim, rows: FrameRows) -> Batch | Receipt:
    claim.settle()
    applied = job.target.markers([rows.content_hash]).by_hash
    if rows.content_hash in applied:
        return _already(receipt_from_marker(job, applied[rows.content_hash]))
    return claim.create(rows)


def _file_batch(job: Job, claim: Claim) -> tuple[Batch | Receipt, tuple[str, ...]]:
    found = discover(job)
    for unreadable in found.unreadable:
        raise unreadable
    if found.report.listed == 0:
        raise SourceError(f"{job.task.files.files}: no file matches", hint="check the path or glob")
    again = _deliver_again(job, found)
    claim.settle(markers=again.markers)
    return claim.next_batch() or _already(claim.recovered[-1]), again.warnings


@dataclass(frozen=True)
class _Again:
    warnings: tuple[str, ...]
    markers: TableMarkers | None = None  # of what waits, where they are known


def _deliver_again(job: Job, found: Discovered) -> _Again:
    """If the table holds all files of this call, and none in its latest load, they are delivered again: by
    the call, since no ledger knows whether it is the one that loaded them first."""
    again, markers = delivered_again(job)
    if not again:
        return _Again(found.warnings, markers)
    what = f"{again[0].path}: the table held this content before its latest load"
    match job.task.repeated_content:
        case RepeatedContent.SKIP:
            return _Again((*found.warnings, f"{what}; it is not loaded again: see repeated_content"), markers)
        case RepeatedContent.FAIL:
            raise SourceError(
                f"{what}, and repeated_content is fail",
                hint='nothing was written; repeated_content="apply" loads it again',
            )
        case RepeatedContent.APPLY:
            job.ledger.register(job.task.pipeline, job.table_key, again)
            return _Again((*found.warnings, f"{what}; it is applied again: see repeated_content"))
        case _:
            assert_never(job.task.repeated_content)


def _already(first: Receipt) -> Receipt:
    """The receipt of a call that changed nothing, from that of the commit that applied its content."""
    return Receipt(
        batch_id=first.batch_id,
        pipeline=first.pipeline,
        table=first.table,
        strategy=first.strategy,
        counts=Counts(),
        version=first.version,
        sequence=first.sequence,
        committed_at=first.committed_at,
        already_applied=True,
        way="skip",
    )


@contextmanager
def _job(
    source: DataFrame | str | Path,
    target: str | Path,
    options: MergeOptions,
    spark: SparkSession | None,
    destination: Target | None,
) -> Iterator[Job]:
    task = _task(source, target, options, in_folder=destination is None)
    sessions = _sessions(source, spark, destination)
    with (
        active_session_kept(),
        tempfile.TemporaryDirectory(prefix="tallymark-") as folder,
        _shared(source) as shared,
        temporary_ledger() as ledger,
    ):
        connections = Connections(
            table=task.table,
            start_spark=sessions.isolated,
            open_destination=lambda session: _destination(task.table, session, destination),
            quarantine_roots=(f"{folder}/quarantine",),
        )
        run = RunContext(
            id=ledger.start_run("library", "merge", host="", pid=0),
            holder="library",
            clock=lambda: datetime.now(UTC),
            on_event=lambda event: None,
        )
        yield Job(task, ledger, connections, run, frame=shared)


def _destination(table: str, spark: Callable[[], SparkSession], chosen: Target | None = None) -> Destination:
    """Without a choice, the target itself says where the table is."""
    if isinstance(chosen, Mapping):
        return registry.open_destination(registry.parse_options(chosen), spark, os.path.abspath)
    return registry.open_target(table, spark) if chosen is None else chosen.open(spark)


@contextmanager
def _shared(source: DataFrame | str | Path) -> Iterator[Callable[[SparkSession], DataFrame] | None]:
    """A DataFrame belongs to its session. A global view lets the isolated session read it, so that marker and
    fence are never set on a session that the caller uses."""
    if isinstance(source, str | Path):
        yield None
        return
    name = f"tallymark_{uuid4().hex}"
    source.createGlobalTempView(name)
    schema = source.sparkSession.conf.get("spark.sql.globalTempDatabase", "global_temp")
    try:
        yield lambda spark: spark.table(f"{schema}.{name}")
    finally:
        with suppress(Exception):  # how the load ended is for the caller to know, not this
            source.sparkSession.catalog.dropGlobalTempView(name)
