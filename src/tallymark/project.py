"""The front door of a project, for the command line and for programs.

import tallymark as tm

with tm.Project("shop") as project:
    project.run("silver.orders")
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from tallymark.config.effective import effective_settings
from tallymark.config.keys import schemas as config_schemas
from tallymark.config.load_project import LoadedProject, find_project, load_project
from tallymark.config.new_project import scaffold_project
from tallymark.errors import ConfigError, TallymarkError
from tallymark.flow.inspect.lineage import trace_columns
from tallymark.flow.inspect.validate import checked_graph, examine
from tallymark.flow.job import Job
from tallymark.flow.jobs import LoadOptions, pipeline_job
from tallymark.flow.recover import recover_pipeline
from tallymark.flow.replay import replay_pipeline
from tallymark.flow.run import run_in_order, run_pipeline
from tallymark.flow.select import NamedDestination, named_destination, select_pipelines
from tallymark.ledger import Ledger, open_ledger, reading_ledger
from tallymark.model.graph import GraphNode, PipelineLineage
from tallymark.model.report import (
    BatchRecord,
    EffectiveSetting,
    Event,
    Finding,
    PipelineReport,
    PipelineStatus,
    PlanReport,
    PrepareReport,
    Preview,
    QuarantinedRow,
    QuarantineSummary,
    RunReport,
    Step,
)
from tallymark.spark import Sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.checks.quarantine import Quarantine
    from tallymark.checks.quarantine_files import QuarantineReader

# What needs Spark is imported where it is used: a run with nothing new ends before Spark is imported.
HOME = ".tallymark"  # of a project: logs, scratch, the default ledger
Found = TypeVar("Found")


class Project:
    """A project folder: run it, plan it, ask it. Raises ConfigError when its files are wrong."""

    def __init__(
        self,
        folder: str | Path = ".",
        *,
        spark: SparkSession | None = None,
        on_event: Callable[[Event], None] | None = None,
    ):
        self._project: LoadedProject = load_project(find_project(Path(folder)))
        self._graph = checked_graph(self._project)
        self._on_event = on_event or (lambda event: None)
        home = self._project.root / HOME
        self._sessions = (
            Sessions.of(spark, self._project.spark_needs)
            if spark
            else Sessions(
                self._project.config.spark,
                self._project.spark_needs,
                home=home,
                on_progress=self._tell_of_spark,
            )
        )
        self._opened: Ledger | None = None

    @property
    def name(self) -> str:
        return self._project.name

    @property
    def root(self) -> Path:
        return self._project.root

    @property
    def pipelines(self) -> tuple[str, ...]:
        return tuple(self._project.pipelines)

    def run(self, *pipelines: str, **options: Unpack[LoadOptions]) -> RunReport:
        """Loads what is new. Failures are in the report, not raised; `report.ok` says how it went. With
        `full_refresh`, or `since` and `until`, transforms are asked again for all or some of their rows."""
        return self._work("run", pipelines, run_pipeline, options)

    def recover(self, *pipelines: str) -> list[PipelineReport]:
        """Settles open batches by their markers and rebuilds lost records; loads nothing."""
        return list(self._work("recover", pipelines, recover_pipeline).pipelines)

    def plan(self, *pipelines: str, samples: int = 10, **options: Unpack[LoadOptions]) -> list[PlanReport]:
        """What the next batch of each pipeline would do. Nothing is written, not even a new ledger."""
        from tallymark.flow.plan import explain_pipeline

        with reading_ledger(self._project.ledger_url, self._opened) as ledger:
            jobs = self._jobs(pipelines, ledger, "", options)
            return [explain_pipeline(job, samples) for job in jobs]

    def preview(self, pipeline: str, rows: int = 20) -> Preview:
        """The query, the first rows, the schema and Spark's plan of what a pipeline would load. Nothing is
        written."""
        from tallymark.flow.inspect.preview import preview_pipeline

        with reading_ledger(self._project.ledger_url, self._opened) as ledger:
            [job] = self._jobs([self._one(pipeline)], ledger, "")
            return preview_pipeline(job, rows)

    def status(self) -> list[PipelineStatus]:
        with reading_ledger(self._project.ledger_url, self._opened) as ledger:
            return [
                PipelineStatus(
                    pipeline=pipeline.name,
                    table=pipeline.table,
                    strategy="view" if pipeline.is_view else str(pipeline.settings.strategy),
                    files=summary.files,
                    batches=summary.batches,
                    last_commit=summary.last_receipt,
                    last_error=summary.last_error,
                    failed_files=summary.failed_files,
                    quality=summary.quality,
                )
                for pipeline in self._project.pipelines.values()
                for summary in [ledger.pipeline_summary(pipeline.name)]
            ]

    def history(self, pipeline: str | None = None, limit: int = 20) -> list[BatchRecord]:
        if pipeline is not None:
            select_pipelines(self._project, [pipeline])
        with reading_ledger(self._project.ledger_url, self._opened) as ledger:
            return ledger.history(pipeline, limit)

    def requeue(self, pipeline: str, files: Collection[str] | None = None) -> int:
        """Failed files wait for a load again; gives their number."""
        names = [chosen.name for chosen in select_pipelines(self._project, [pipeline])]
        paths = None if files is None else [self._project.resolve(file) for file in files]
        return sum(self._ledger().requeue(name, paths) for name in names)

    def quarantine_list(self, pipeline: str | None = None) -> list[QuarantineSummary]:
        """The batches that have bad rows. Starts no Spark for a quarantine in a local folder."""
        return self._read_quarantine(lambda quarantine: quarantine.summaries(pipeline))

    def quarantine_show(
        self, pipeline: str, batch_id: str | None = None, limit: int = 100
    ) -> list[QuarantinedRow]:
        """Bad rows, oldest first. Starts no Spark for a quarantine in a local folder."""
        name = self._one(pipeline)
        return self._read_quarantine(lambda quarantine: quarantine.rows(name, batch_id, limit=limit))

    def quarantine_replay(self, pipeline: str, batch_id: str | None = None) -> PipelineReport:
        """Sends quarantined rows through the pipeline again, once."""
        name = self._one(pipeline)
        return self._work("replay", [name], lambda job: replay_pipeline(job, batch_id)).pipelines[0]

    def quarantine_drop(self, pipeline: str, batch_id: str, ids: Collection[str] | None = None) -> int:
        return self._quarantine().remove(self._one(pipeline), batch_id, ids)

    def destination(self, name: str | None = None) -> NamedDestination:
        """A destination of the project by its name, else the default one: for `tm.merge` and `tm.plan`."""
        return named_destination(self._project, name)

    def settings(self, pipeline: str) -> tuple[EffectiveSetting, ...]:
        """The settings that hold for a pipeline, and where each came from. Starts no Spark."""
        return effective_settings(self._project, self._project.pipelines[self._one(pipeline)])

    def graph(self, *pipelines: str) -> tuple[GraphNode, ...]:
        """What each pipeline reads and who reads it, in the order in which they run. Starts no Spark."""
        return self._graph.nodes(one.name for one in select_pipelines(self._project, pipelines))

    def lineage(self, *pipelines: str) -> tuple[PipelineLineage, ...]:
        """Which columns each column of a SQL pipeline is made of, as far as its query tells."""
        traced = trace_columns(self._project, self._graph)
        return tuple(traced[node.pipeline] for node in self.graph(*pipelines))

    def doctor(self) -> list[Finding]:
        from tallymark.flow.inspect import doctor

        return list(doctor.examine(self._project, self._sessions))

    def prepare(self) -> PrepareReport:
        """Fetches Spark's JARs and keeps Java's classes in a file: later starts take less time. Loads
        nothing of the project."""
        from tallymark.flow.inspect.warmup import load_samples

        archive = self._sessions.archive_classes(load_samples)
        return PrepareReport(archive, archive.stat().st_size)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._sessions.stop()

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(
        self,
        command: str,
        pipelines: Sequence[str],
        work: Callable[[Job], PipelineReport],
        options: LoadOptions | None = None,
    ) -> RunReport:
        chosen = [pipeline.name for pipeline in select_pipelines(self._project, pipelines)]
        started_at, started, ledger = _now(), time.monotonic(), self._ledger()
        run_id = ledger.start_run(self.name, command, host=socket.gethostname(), pid=os.getpid())
        try:
            jobs = self._jobs(chosen, ledger, run_id, options) if chosen else []
        except TallymarkError:
            ledger.finish_run(run_id, "FAILED", {})
            raise
        reports = run_in_order(jobs, self._graph.levels(), work, self._project.config.parallel)
        report = RunReport(run_id, self.name, reports, started_at, time.monotonic() - started)
        outcomes: dict[str, object] = {r.pipeline: str(r.outcome) for r in reports}
        ledger.finish_run(run_id, "SUCCEEDED" if report.ok else "FAILED", outcomes)
        return report

    def _jobs(
        self, names: Sequence[str], ledger: Ledger, run_id: str, options: LoadOptions | None = None
    ) -> list[Job]:
        return [
            pipeline_job(
                self._project,
                pipeline,
                ledger=ledger,
                sessions=self._sessions,
                run_id=run_id,
                clock=_now,
                on_event=self._on_event,
                options=options or {},
            )
            for pipeline in select_pipelines(self._project, names)
        ]

    def _tell_of_spark(self, text: str) -> None:
        self._on_event(Event("", Step.SPARK, text))

    def _one(self, pipeline: str) -> str:
        chosen = select_pipelines(self._project, [pipeline])
        if len(chosen) != 1:
            raise ConfigError(f"{pipeline} names {len(chosen)} pipelines", hint="name exactly one")
        return chosen[0].name

    def _ledger(self) -> Ledger:
        if self._opened is None:
            self._opened = open_ledger(self._project.ledger_url)
        return self._opened

    def _read_quarantine(self, read: Callable[[QuarantineReader], Found]) -> Found:
        from tallymark.checks.quarantine_files import NeedsSpark, QuarantineFiles

        root = self._project.quarantine_root
        try:
            if not self._sessions.share_files():
                raise NeedsSpark(f"{root} is a path of another machine or store")
            return read(QuarantineFiles(root))
        except NeedsSpark as reason:
            self._tell_of_spark(f"reading the quarantine needs Spark: {reason}")
            return read(self._quarantine())

    def _quarantine(self) -> Quarantine:
        from tallymark.checks.quarantine import Quarantine

        return Quarantine(self._sessions.isolated(), self._project.quarantine_root)


def validate(folder: str | Path = ".") -> list[Finding]:
    """Reads all configuration and reports every problem in it. Starts no Spark."""
    return examine(Path(folder))


def init_project(folder: str | Path, name: str | None = None, with_sample: bool = True) -> list[Path]:
    """Makes a project that runs; the sample is a small pipeline to look at."""
    root = Path(folder).resolve()
    return scaffold_project(root, name or root.name, with_sample)


def init_pipeline(
    folder: str | Path,
    name: str,
    from_file: str | Path,
    strategy: str | None = None,
    unique_key: Sequence[str] = (),
) -> Path:
    """Writes a pipeline for a file like `from_file`, with the columns and types found in it."""
    from tallymark.flow.inspect.scaffold import propose_pipeline

    project = load_project(find_project(Path(folder)))
    sessions = Sessions(project.config.spark, project.spark_needs, home=project.root / HOME)
    try:
        sample = Path(from_file).resolve()
        return propose_pipeline(project, sessions, name, sample, strategy, unique_key)
    finally:
        sessions.stop()


def schemas() -> dict[str, dict[str, object]]:
    """JSON Schemas of `tallymark.yaml` and `config.yaml`, by file name."""
    return config_schemas()


def _now() -> datetime:
    return datetime.now(UTC)
