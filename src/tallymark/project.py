"""The front door of a project, for the command line and for programs.

import tallymark as tm

with tm.Project("shop") as project:
    project.run("silver.orders")
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from tallymark.config.keys import schemas as config_schemas
from tallymark.config.load_project import LoadedProject, effective_settings, find_project, load_project
from tallymark.config.new_project import scaffold_project
from tallymark.errors import ConfigError, LedgerError
from tallymark.flow.bad_rows import BadRows, judge, read_quarantine
from tallymark.flow.inspect.findings import checked_graph, diagnose
from tallymark.flow.inspect.findings import validate as validate_folder
from tallymark.flow.inspect.lineage import trace_columns
from tallymark.flow.job import Job, LoadOptions, RunContext, pipeline_job
from tallymark.flow.lease import holder_name, process_lives
from tallymark.flow.recover import recover_pipeline, replay_pipeline
from tallymark.flow.run import run_in_order, run_pipeline
from tallymark.flow.select import NamedDestination, named_destination, select_pipelines
from tallymark.ledger import Ledger, open_ledger, reading_ledger
from tallymark.model.graph import Graph, GraphNode, PipelineLineage
from tallymark.model.report import (
    BatchRecord,
    Cancellation,
    EffectiveSetting,
    Event,
    Finding,
    Outcome,
    PipelineReport,
    PipelineStatus,
    PlanReport,
    PrepareReport,
    Preview,
    QuarantinedRow,
    QuarantineSummary,
    RunRecord,
    RunReport,
    RunState,
    Step,
)
from tallymark.spark import Sessions
from tallymark.spark.sessions import active_session_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.checks.quarantine import Quarantine

# What needs Spark is imported where it is used: a run with nothing new ends before Spark is imported.
HOME = ".tallymark"  # in a project: logs, temporary files, the default ledger
Found = TypeVar("Found")
Listener = Callable[[Event], None]


@dataclass(frozen=True)
class _Configuration:
    """One reading of the project's files, and the Spark for it. A call uses one from its start to its end."""

    project: LoadedProject
    graph: Graph
    sessions: Sessions


class Project:
    """A project folder: run it, plan it, ask it. Raises ConfigError if its files are wrong.

    Threads may share a Project, and a process may have several. `on_event` gets the progress of every call,
    in the thread that does the work; a call's own `on_event` gets the progress of that call only.
    """

    def __init__(
        self,
        folder: str | Path = ".",
        *,
        spark: SparkSession | None = None,
        on_event: Listener | None = None,
    ):
        self._root = find_project(Path(folder))
        self._spark = spark
        self._on_event = on_event
        self._lock = threading.Lock()
        self._ledgers: dict[str, Ledger] = {}  # by address
        self._retired: list[Sessions] = []  # of earlier configurations; calls may still be using them
        self._current = self._read()

    @property
    def name(self) -> str:
        return self._current.project.name

    @property
    def root(self) -> Path:
        return self._root

    @property
    def pipelines(self) -> tuple[str, ...]:
        return tuple(self._current.project.pipelines)

    def reload(self) -> None:
        """Reads the configuration again. If it is wrong, raises ConfigError and the earlier one stays. Calls
        that are under way end with the configuration they started with.

        Changed `spark` settings hold when Spark is next needed. Only an embedded Spark that already runs
        cannot change: its new sessions get the `spark.sql` settings, the others need a new process.
        """
        with self._lock:
            before = self._current
            self._current = self._read(before)
            if self._current.sessions is not before.sessions:
                self._retired.append(before.sessions)

    def run(
        self,
        *pipelines: str,
        on_event: Listener | None = None,
        cancellation: Cancellation | None = None,
        **options: Unpack[LoadOptions],
    ) -> RunReport:
        """Loads what is new. Failures are in the report, not raised; `report.ok` says how it went. With
        `full_refresh`, or `since` and `until`, all or some rows of transforms are computed again."""
        return self._work("run", pipelines, run_pipeline, on_event, cancellation, options)

    def recover(
        self, *pipelines: str, on_event: Listener | None = None, cancellation: Cancellation | None = None
    ) -> list[PipelineReport]:
        """Settles open batches by their markers and rebuilds lost records; loads nothing."""
        return list(self._work("recover", pipelines, recover_pipeline, on_event, cancellation).pipelines)

    def plan(
        self,
        *pipelines: str,
        samples: int = 10,
        on_event: Listener | None = None,
        cancellation: Cancellation | None = None,
        **options: Unpack[LoadOptions],
    ) -> list[PlanReport]:
        """What the next batch of each pipeline would do. Nothing is written, not even a new ledger. Raises
        Cancelled if it was cancelled."""
        from tallymark.flow.plan import explain_pipeline

        current, stop = self._current, cancellation or Cancellation()
        with active_session_kept(), self._reading(current) as ledger:
            plans = []
            for job in self._jobs(current, pipelines, ledger, "", on_event, stop, options):
                stop.check()
                plans.append(explain_pipeline(job, samples))
            stop.check()
            return plans

    def preview(self, pipeline: str, rows: int = 20, *, on_event: Listener | None = None) -> Preview:
        """The query, the first rows, the schema and Spark's plan of what a pipeline would load. Nothing is
        written."""
        from tallymark.flow.inspect.preview import preview_pipeline

        current = self._current
        name = _one(current.project, pipeline)
        with active_session_kept(), self._reading(current) as ledger:
            [job] = self._jobs(current, [name], ledger, "", on_event, None, {})
            return preview_pipeline(job, rows)

    def status(self) -> list[PipelineStatus]:
        """Each pipeline: its files, its last commit, what needs repair."""
        current = self._current
        with self._reading(current) as ledger:
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
                for pipeline in current.project.pipelines.values()
                for summary in [ledger.pipeline_summary(pipeline.name)]
            ]

    def history(self, pipeline: str | None = None, limit: int = 20) -> list[BatchRecord]:
        """The newest batches first."""
        current = self._current
        if pipeline is not None:
            select_pipelines(current.project, [pipeline])
        with self._reading(current) as ledger:
            return ledger.history(pipeline, limit)

    def runs(
        self,
        limit: int = 20,
        before: str | None = None,
        pipeline: str | None = None,
        state: RunState | str | None = None,
    ) -> list[RunRecord]:
        """The newest runs first, without their batches. For the next page, `before` is the id of the last run
        of this one. A run that was killed is ABANDONED, or UNKNOWN if this machine cannot tell."""
        current = self._current
        name = None if pipeline is None else _one(current.project, pipeline)
        wanted = None if state is None else RunState(state)
        with self._reading(current) as ledger:
            return ledger.runs(
                is_alive=process_lives, limit=limit, before=before, pipeline=name, state=wanted
            )

    def run_record(self, run_id: str) -> RunRecord:
        """One run, with its batches: those whose last attempt was in this run."""
        with self._reading(self._current) as ledger:
            return ledger.run_record(run_id, is_alive=process_lives)

    def requeue(self, pipeline: str, files: Collection[str] | None = None) -> int:
        """The next run tries failed files again; returns their number."""
        project = self._current.project
        names = [chosen.name for chosen in select_pipelines(project, [pipeline])]
        paths = None if files is None else [project.resolve(file) for file in files]
        ledger = self._ledger(project.ledger_url)
        return sum(ledger.requeue(name, paths) for name in names)

    def quarantine_list(self, pipeline: str | None = None) -> list[QuarantineSummary]:
        """The committed batches that have bad rows. Starts no Spark for a quarantine in a local folder."""
        return self._read_quarantine(lambda bad_rows: bad_rows.summaries(pipeline))

    def quarantine_show(
        self, pipeline: str, batch_id: str | None = None, limit: int = 100
    ) -> list[QuarantinedRow]:
        """Bad rows of committed batches, oldest first. Starts no Spark for a quarantine in a local folder."""
        name = _one(self._current.project, pipeline)
        return self._read_quarantine(lambda bad_rows: bad_rows.rows(name, batch_id, limit=limit))

    def quarantine_replay(
        self,
        pipeline: str,
        batch_id: str | None = None,
        *,
        on_event: Listener | None = None,
        cancellation: Cancellation | None = None,
    ) -> PipelineReport:
        """Sends quarantined rows through the pipeline again, once."""
        name = _one(self._current.project, pipeline)
        replay = partial(replay_pipeline, batch_id=batch_id)
        return self._work("replay", [name], replay, on_event, cancellation).pipelines[0]

    def quarantine_drop(self, pipeline: str, batch_id: str, ids: Collection[str] | None = None) -> int:
        """Deletes quarantined rows for good; returns their number."""
        current = self._current
        name, quarantine = _one(current.project, pipeline), _quarantine(current)
        with self._reading(current) as ledger:
            judged = judge(ledger, name, quarantine.attempts(name), _now())
        dropped = quarantine.remove(name, judged.of_batch(batch_id), ids)
        quarantine.remove(name, judged.dead)
        return dropped

    def destination(self, name: str | None = None) -> NamedDestination:
        """A destination of the project by its name, else the default one: for `tm.merge` and `tm.plan`."""
        return named_destination(self._current.project, name)

    def settings(self, pipeline: str) -> tuple[EffectiveSetting, ...]:
        """The settings that hold for a pipeline, and where each came from. Starts no Spark."""
        project = self._current.project
        return effective_settings(project, project.pipelines[_one(project, pipeline)])

    def graph(self, *pipelines: str) -> tuple[GraphNode, ...]:
        """What each pipeline reads and what reads it, in the order in which they run. Starts no Spark."""
        current = self._current
        return current.graph.nodes(one.name for one in select_pipelines(current.project, pipelines))

    def lineage(self, *pipelines: str) -> tuple[PipelineLineage, ...]:
        """The columns that each column of a SQL pipeline is made of, as far as its query tells."""
        current = self._current
        traced = trace_columns(current.project, current.graph)
        chosen = (one.name for one in select_pipelines(current.project, pipelines))
        return tuple(traced[node.pipeline] for node in current.graph.nodes(chosen))

    def doctor(self) -> list[Finding]:
        """Tries Java, Spark, the ledger and every destination."""
        current = self._current
        return list(diagnose(current.project, current.sessions))

    def prepare(self) -> PrepareReport:
        """Downloads Spark's JARs and writes Java's classes to a file, so that later starts take less time.
        Loads nothing of the project."""
        from tallymark.flow.inspect.warmup import load_samples

        archive = self._current.sessions.archive_classes(load_samples)
        return PrepareReport(archive, archive.stat().st_size)

    def close(self) -> None:
        """Closes the ledger and stops the Spark that it started."""
        with self._lock:
            while self._ledgers:
                self._ledgers.popitem()[1].close()
            while self._retired:
                self._retired.pop().stop()
            self._current.sessions.stop()

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, before: _Configuration | None = None) -> _Configuration:
        project = load_project(self._root)
        graph = checked_graph(project)
        if before is not None and _same_spark(before.project, project):
            return _Configuration(project, graph, before.sessions)
        if self._spark is not None:
            return _Configuration(project, graph, Sessions.of(self._spark, project.spark_needs))
        sessions = Sessions(
            project.config.spark, project.spark_needs, home=self._root / HOME, on_progress=self._tell_of_spark
        )
        return _Configuration(project, graph, sessions)

    def _work(
        self,
        command: str,
        pipelines: Sequence[str],
        work: Callable[[Job], PipelineReport],
        on_event: Listener | None,
        cancellation: Cancellation | None,
        options: LoadOptions | None = None,
    ) -> RunReport:
        """1. The ledger records the run before anything happens. 2. The pipelines work, in order.
        3. The ledger records the end of the run, whatever it was."""
        current, started_at, started = self._current, _now(), time.monotonic()
        chosen = [pipeline.name for pipeline in select_pipelines(current.project, pipelines)]
        ledger = self._ledger(current.project.ledger_url)
        run_id = ledger.start_run(
            current.project.name, command, host=socket.gethostname(), pid=os.getpid(), pipelines=chosen
        )
        try:
            jobs = (
                self._jobs(current, chosen, ledger, run_id, on_event, cancellation, options or {})
                if chosen  # no names would mean all pipelines
                else []
            )
            reports = run_in_order(jobs, current.graph.levels(), work, current.project.config.parallel)
        except BaseException:
            with suppress(LedgerError):  # what ended the run is for the caller to know, not this
                ledger.finish_run(run_id, RunState.FAILED, dict.fromkeys(chosen))
            raise
        report = RunReport(run_id, current.project.name, reports, started_at, time.monotonic() - started)
        ledger.finish_run(run_id, _end_of(report), {one.pipeline: one.outcome for one in reports})
        return report

    def _jobs(
        self,
        current: _Configuration,
        names: Sequence[str],
        ledger: Ledger,
        run_id: str,
        on_event: Listener | None,
        cancellation: Cancellation | None,
        options: LoadOptions,
    ) -> list[Job]:
        tell, stop = _to_each(self._on_event, on_event), cancellation or Cancellation()
        run = RunContext(run_id, holder_name(), _now, tell, stop)
        return [
            pipeline_job(
                current.project,
                pipeline,
                ledger=ledger,
                sessions=current.sessions,
                run=run,
                options=options,
            )
            for pipeline in select_pipelines(current.project, names)
        ]

    def _tell_of_spark(self, text: str) -> None:
        _to_each(self._on_event)(Event("", Step.SPARK, text))

    def _reading(self, current: _Configuration) -> AbstractContextManager[Ledger]:
        url = current.project.ledger_url
        return reading_ledger(url, self._ledgers.get(url))

    def _ledger(self, url: str) -> Ledger:
        """Open until `close`: after a reload with another address, calls may still use the earlier one."""
        with self._lock:
            if url not in self._ledgers:
                self._ledgers[url] = open_ledger(url)
            return self._ledgers[url]

    def _read_quarantine(self, read: Callable[[BadRows], Found]) -> Found:
        current = self._current
        with self._reading(current) as ledger:
            return read_quarantine(
                current.project.quarantine_roots,
                here=current.sessions.share_files(),
                spark_reader=lambda: _quarantine(current),
                read=lambda reader: read(BadRows(ledger, reader, self._tell_of_unknown)),
                on_spark=lambda why: self._tell_of_spark(f"reading the quarantine needs Spark: {why}"),
            )

    def _tell_of_unknown(self, pipeline: str, batches: int) -> None:
        text = f"the quarantine has bad rows of {batches} batches that the ledger does not know: if it was "
        text += f"lost, run `tallymark recover {pipeline}`"
        _to_each(self._on_event)(Event(pipeline, Step.RECORD, text))


def _quarantine(current: _Configuration) -> Quarantine:
    from tallymark.checks.quarantine import Quarantine

    return Quarantine(current.sessions.isolated(), *current.project.quarantine_roots)


def _one(project: LoadedProject, pipeline: str) -> str:
    chosen = select_pipelines(project, [pipeline])
    if len(chosen) != 1:
        raise ConfigError(f"{pipeline} names {len(chosen)} pipelines", hint="name exactly one")
    return chosen[0].name


def _same_spark(before: LoadedProject, after: LoadedProject) -> bool:
    return (before.config.spark, before.spark_needs) == (after.config.spark, after.spark_needs)


def _to_each(*listeners: Listener | None) -> Listener:
    given = [listener for listener in listeners if listener is not None]

    def tell(event: Event) -> None:
        for listener in given:
            listener(event)

    return tell


def _end_of(report: RunReport) -> RunState:
    if any(one.outcome is Outcome.CANCELLED for one in report.pipelines):
        return RunState.CANCELLED
    return RunState.SUCCEEDED if report.ok else RunState.FAILED


def validate(folder: str | Path = ".") -> list[Finding]:
    """Reads all configuration and reports every problem in it. Starts no Spark."""
    return validate_folder(Path(folder))


def init_project(folder: str | Path, name: str | None = None, with_sample: bool = True) -> list[Path]:
    """Creates a project that runs; the sample is a small pipeline with data."""
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
    from tallymark.flow.inspect.scaffold import scaffold_from_sample

    project = load_project(find_project(Path(folder)))
    sessions = Sessions(project.config.spark, project.spark_needs, home=project.root / HOME)
    try:
        sample = Path(from_file).resolve()
        return scaffold_from_sample(project, sessions, name, sample, strategy, unique_key)
    finally:
        sessions.stop()


def schemas() -> dict[str, dict[str, object]]:
    """JSON Schemas of `tallymark.yaml` and `config.yaml`, by file name."""
    return config_schemas()


def _now() -> datetime:
    return datetime.now(UTC)
