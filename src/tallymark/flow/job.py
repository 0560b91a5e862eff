"""One pipeline's load: what to do, and the live things to do it with; made from a loaded project."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from tallymark.checks.quality_gates import Quality
from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_file import (
    BatchConfig,
    ColumnConfig,
    Materialized,
    QuarantineConfig,
    SourceConfig,
)
from tallymark.config.pipeline_folders import Pipeline
from tallymark.config.query_files import Transform
from tallymark.destinations.contract import Destination, TableLocator, TargetTable
from tallymark.errors import SourceError, Unsupported
from tallymark.flow.inspect.graph import transform_references
from tallymark.flow.select import NamedDestination, named_destination
from tallymark.flow.transform.backfill import refuse_rerun
from tallymark.ledger.ledger import Ledger
from tallymark.model.batch import ONLY_NEW, Rerun, code_hash
from tallymark.model.receipt import Receipt
from tallymark.model.report import Cancellation, Event, Step
from tallymark.model.section import Scalar
from tallymark.model.settings import EnvelopeSettings, MergeSettings, RepeatedContent
from tallymark.spark import Sessions
from tallymark.spark.sessions import activate
from tallymark.strategies.build import (
    ORDER_FREE,
    default_for_repeats,
    effective_settings,
    takes_one_file_per_batch,
)
from tallymark.templates import References

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tallymark.checks.quarantine import Quarantine

log = logging.getLogger(__name__)

MANY_FILES = 5000  # in one commit: its marker then takes about 350 kB of the log


@dataclass(frozen=True)
class Query:
    """A transform, and what it reads."""

    transform: Transform
    code: str  # hash of its text, settings and variables
    refs: tuple[str, ...]  # pipelines
    zones: Mapping[str, SourceConfig]  # landing zone → its files
    variables: Mapping[str, Scalar]
    is_view: bool = False  # kept as it is, instead of its rows


@dataclass(frozen=True)
class Task:
    """What to load and how; nothing live in it."""

    pipeline: str
    table: str
    settings: MergeSettings
    source: SourceConfig | None  # None: a transform
    query: Query | None = None  # of a transform
    rules: tuple[ColumnConfig, ...] = ()
    envelope: EnvelopeSettings | None = None
    provenance: bool = True
    limits: QuarantineConfig = field(default_factory=QuarantineConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    max_attempts: int = 3
    root: Path = field(default_factory=Path.cwd)
    allow_deletes: bool = False
    rerun: Rerun = ONLY_NEW
    archive: bool = False  # move files away once they are loaded
    repeated: RepeatedContent | None = None  # None: the strategy's default
    quality: Quality = field(default_factory=Quality)

    @property
    def files(self) -> SourceConfig:
        if self.source is None:
            raise Unsupported(
                f"{self.pipeline} is a transform: it has no files of its own",
                hint="name a pipeline that loads files",
            )
        return self.source

    @property
    def order(self) -> Literal["name", "modified"]:
        """Results of a transform apply in the order in which they were first asked for."""
        return "modified" if self.source is None else self.source.order

    @property
    def is_view(self) -> bool:
        return self.query is not None and self.query.is_view

    @property
    def strategy(self) -> str:
        """As receipts and reports tell it."""
        return str(Materialized.VIEW if self.is_view else self.settings.strategy)

    @property
    def max_files(self) -> int:
        if self.batch.max_files is not None:
            return self.batch.max_files
        return (
            1
            if self.query or takes_one_file_per_batch(effective_settings(self.settings).settings)
            else MANY_FILES
        )

    @property
    def repeated_content(self) -> RepeatedContent:
        return self.repeated or default_for_repeats(effective_settings(self.settings).settings)

    @property
    def is_grouped(self) -> bool:
        """Whether each file would be a state of its own, had the user not set how many belong together."""
        alone = takes_one_file_per_batch(effective_settings(self.settings).settings)
        return alone and self.batch.max_files not in (None, 1)

    @property
    def ordered(self) -> bool:
        """Whether a file that failed must hold back those after it."""
        return effective_settings(self.settings).settings.strategy not in ORDER_FREE


@dataclass(frozen=True)
class RunContext:
    """The run that a job belongs to."""

    id: str
    holder: str  # of leases
    clock: Callable[[], datetime]
    on_event: Callable[[Event], None]
    cancellation: Cancellation = field(default_factory=Cancellation)


@dataclass(eq=False)
class Connections:
    """What the load of one table opens when it is first needed, each once. Spark is imported and started only
    then, so that a run with nothing new does neither."""

    table: str
    start_spark: Callable[[], SparkSession]
    open_destination: Callable[[Callable[[], SparkSession]], Destination]
    quarantine_roots: tuple[str, ...]  # where bad rows are written, then where earlier versions did
    shares_files: Callable[[], bool] = lambda: True  # whether a local path is the same file for Spark
    locator: TableLocator | None = None  # without Spark; None if the destination itself needs none
    table_of: Callable[[str], tuple[NamedDestination, str]] | None = None  # of another pipeline
    _inputs: dict[str, Destination] = field(default_factory=dict, init=False)  # by name

    @cached_property
    def spark(self) -> SparkSession:
        session = self.start_spark()
        activate(session)
        return session

    @cached_property
    def destination(self) -> Destination:
        return self.open_destination(lambda: self.spark)

    @cached_property
    def target(self) -> TargetTable:
        return self.destination.table(self.table)

    @cached_property
    def quarantine(self) -> Quarantine:
        from tallymark.checks.quarantine import Quarantine

        return Quarantine(self.spark, *self.quarantine_roots)

    @cached_property
    def table_key(self) -> str:
        return self.target.key if self.locator is None else self.locator.key(self.table)

    def was_rolled_back(self, last: Receipt) -> bool:
        """Whether the table no longer holds its last recorded load, as far as can be told without Spark."""
        if self.locator is not None:
            return self.locator.was_rolled_back(self.table, last)
        return self.target.was_rolled_back(last)

    def input_table(self, pipeline: str) -> TargetTable:
        """The table of another pipeline. Each destination is opened once."""
        named, table = self.named_input(pipeline)
        if named.name not in self._inputs:
            self._inputs[named.name] = named.open(lambda: self.spark)
        return self._inputs[named.name].table(table)

    def named_input(self, pipeline: str) -> tuple[NamedDestination, str]:
        assert self.table_of is not None  # noqa: S101  only projects have transforms
        return self.table_of(pipeline)


@dataclass(frozen=True)
class Job:
    """One load: what to do, where it is recorded, what it opens, and the run that it belongs to."""

    task: Task
    ledger: Ledger
    connections: Connections
    run: RunContext
    frame: Callable[[SparkSession], DataFrame] | None = None  # rows that the library was given
    batch_id: str = ""  # of the batch that is being loaded, for events

    @property
    def spark(self) -> SparkSession:
        return self.connections.spark

    @property
    def destination(self) -> Destination:
        return self.connections.destination

    @property
    def target(self) -> TargetTable:
        return self.connections.target

    @property
    def quarantine(self) -> Quarantine:
        return self.connections.quarantine

    @property
    def table_key(self) -> str:
        return self.connections.table_key

    def now(self) -> datetime:
        return self.run.clock()

    def stop_if_cancelled(self) -> None:
        """Raises Cancelled. Called between steps, never between a commit and its record."""
        self.run.cancellation.check()

    def tell(self, step: Step, text: str, done: int | None = None, total: int | None = None) -> None:
        """Whoever listens has no say in the load: their errors are logged."""
        pipeline, run_id, batch_id = self.task.pipeline, self.run.id, self.batch_id
        try:
            self.run.on_event(Event(pipeline, step, text, done, total, run_id, batch_id))
        except Exception:
            log.exception("a listener failed at %s of %s", step, pipeline)


class LoadOptions(TypedDict, total=False):
    """What a command may request of its loads, beside what is declared."""

    allow_deletes: bool  # more than the guard permits
    full_refresh: bool  # compute all rows of transforms again, and replace their tables
    since: str | date | None  # compute the rows of a window again: from here on
    until: str | date | None  # and before this


def pipeline_job(
    project: LoadedProject,
    pipeline: Pipeline,
    *,
    ledger: Ledger,
    sessions: Sessions,
    run: RunContext,
    options: LoadOptions,
) -> Job:
    rerun = _rerun(options)
    refuse_rerun(pipeline, rerun)
    config = pipeline.config
    destination = named_destination(project, pipeline.destination)
    task = Task(
        pipeline=pipeline.name,
        table=pipeline.table,
        settings=pipeline.settings,
        source=config.source,
        query=_query(project, pipeline, pipeline.transform) if pipeline.transform else None,
        rules=tuple(config.columns),
        envelope=config.envelope_settings(),
        provenance=config.provenance and config.source is not None,  # rows of a query are in no file
        limits=config.quarantine,
        batch=config.batch,
        max_attempts=config.retry.max_attempts,
        root=project.root,
        allow_deletes=options.get("allow_deletes", False),
        rerun=rerun,
        archive=_archives(project, pipeline),
        repeated=config.repeated_content,
        quality=quality_of(project, pipeline),
    )

    def start_spark() -> SparkSession:
        run.on_event(Event(pipeline.name, Step.SPARK, "starting Spark", run_id=run.id))
        return sessions.isolated(lambda text: run.on_event(Event("", Step.SPARK, text, run_id=run.id)))

    connections = Connections(
        table=pipeline.table,
        start_spark=start_spark,
        open_destination=destination.open,
        quarantine_roots=project.quarantine_roots,
        shares_files=sessions.share_files,
        locator=destination.locator(),
        table_of=lambda name: _table_of(project, name),
    )
    return Job(task, ledger, connections, run)


def _rerun(options: LoadOptions) -> Rerun:
    since, until = options.get("since"), options.get("until")
    return Rerun(
        full_refresh=options.get("full_refresh", False),
        since=None if since is None else str(since),
        until=None if until is None else str(until),
    )


def _archives(project: LoadedProject, pipeline: Pipeline) -> bool:
    config = pipeline.config
    if not config.archive_landing_zones:
        return False
    if config.source is not None:
        files = config.source.files
        _refuse_remote_files([files] if isinstance(files, str) else files)
    elif pipeline.transform is not None:
        _refuse_remote_files([project.config.landing_zones])
        _refuse_shared_zones(project, pipeline, transform_references(pipeline.transform))
    return True


def _refuse_shared_zones(project: LoadedProject, pipeline: Pipeline, found: References) -> None:
    mine = {zone.name for zone in found.zones}
    for other in project.pipelines.values():
        if other.transform is None or other.name == pipeline.name:
            continue
        for zone in transform_references(other.transform).zones:
            if zone.name in mine:
                raise Unsupported(
                    f"{pipeline.name}: archive_landing_zones would take the files of landing zone "
                    f"{zone.name} away from {other.name}, which reads it too",
                    hint="load the zone's files by a pipeline of their own, whose table both read",
                )


def _query(project: LoadedProject, pipeline: Pipeline, transform: Transform) -> Query:
    config = pipeline.config
    found = transform_references(transform)
    settings = asdict(pipeline.settings) | {"columns": [rule.model_dump() for rule in config.columns]}
    top = project.config.landing_zones.rstrip("/")
    return Query(
        transform=transform,
        code=code_hash(transform.text, settings, dict(pipeline.variables)),
        refs=tuple(dict.fromkeys(one.name for one in found.refs)),
        zones={one.name: SourceConfig(files=f"{top}/{one.name}/*") for one in found.zones},
        variables=pipeline.variables,
        is_view=pipeline.is_view,
    )


def _table_of(project: LoadedProject, name: str) -> tuple[NamedDestination, str]:
    pipeline = project.pipelines[name]
    return named_destination(project, pipeline.destination), pipeline.table


def _refuse_remote_files(globs: list[str]) -> None:
    for glob in globs:
        if "://" in glob:
            raise SourceError(
                f"source.files: {glob}: archive_landing_zones moves files of this machine only",
                hint="remove archive_landing_zones, or move them by a rule of the storage",
            )


def quality_of(project: LoadedProject, pipeline: Pipeline) -> Quality:
    return Quality(
        rules=pipeline.config.quality,
        tests=tuple(test for test in project.quality_tests if test.pipeline == pipeline.name),
        variables=pipeline.variables,
        origins=pipeline.origins,
    )
