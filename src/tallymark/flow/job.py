"""One pipeline's load: what to do, and the live things to do it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tallymark.checks.quality_gates import Quality
from tallymark.config.field_types import Scalar
from tallymark.config.pipeline_file import (
    BatchConfig,
    ColumnConfig,
    Materialized,
    QuarantineConfig,
    SourceConfig,
)
from tallymark.config.query_files import Transform
from tallymark.destinations.contract import Destination, TableLocator, TargetTable
from tallymark.errors import Unsupported
from tallymark.flow.select import NamedDestination
from tallymark.ledger.ledger import Ledger
from tallymark.model.receipt import Receipt
from tallymark.model.report import Cancellation, Event, Step
from tallymark.model.settings import EnvelopeSettings, MergeSettings
from tallymark.model.transform import ONLY_NEW, Rerun
from tallymark.strategies.build import ORDER_FREE, effective_settings, takes_one_file_per_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tallymark.checks.quarantine import Quarantine

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
    def ordered(self) -> bool:
        """Whether a file that failed must hold back those after it."""
        return effective_settings(self.settings).settings.strategy not in ORDER_FREE


@dataclass(frozen=True)
class Job:
    """A task with its ledger, destination and clock. Spark is imported and started when it is first asked
    for, so that a run with nothing new does neither."""

    task: Task
    ledger: Ledger
    run_id: str
    holder: str
    start_spark: Callable[[], SparkSession]
    open_destination: Callable[[Callable[[], SparkSession]], Destination]
    quarantine_root: str
    clock: Callable[[], datetime]
    on_event: Callable[[Event], None]
    cancellation: Cancellation = field(default_factory=Cancellation)
    frame: Callable[[SparkSession], DataFrame] | None = None  # of a batch that the library was handed
    destination_of: Callable[[str], tuple[NamedDestination, str]] | None = None  # of another pipeline's table
    locator: TableLocator | None = None  # without Spark; None if the destination itself needs none
    inputs: dict[str, Destination] = field(default_factory=dict)  # opened, by the destination's name

    @cached_property
    def spark(self) -> SparkSession:
        self.tell(Step.SPARK, "starting Spark")
        return self.start_spark()

    @cached_property
    def destination(self) -> Destination:
        return self.open_destination(lambda: self.spark)

    @cached_property
    def target(self) -> TargetTable:
        return self.destination.table(self.task.table)

    def was_rolled_back(self, last: Receipt) -> bool:
        """Whether the table no longer holds its last recorded load, as far as can be told without Spark."""
        if self.locator is not None:
            return self.locator.was_rolled_back(self.task.table, last)
        return self.target.was_rolled_back(last)

    @cached_property
    def quarantine(self) -> Quarantine:
        from tallymark.checks.quarantine import Quarantine

        return Quarantine(self.spark, self.quarantine_root)

    @cached_property
    def table_key(self) -> str:
        return self.target.key if self.locator is None else self.locator.key(self.task.table)

    def open_input(self, pipeline: str) -> TargetTable:
        """Another pipeline's table. Each destination is opened once."""
        assert self.destination_of is not None  # noqa: S101  of a project
        named, table = self.destination_of(pipeline)
        if named.name not in self.inputs:
            self.inputs[named.name] = named.open(lambda: self.spark)
        return self.inputs[named.name].table(table)

    def tell(self, step: Step, text: str, done: int | None = None, total: int | None = None) -> None:
        self.on_event(Event(self.task.pipeline, step, text, done, total))
