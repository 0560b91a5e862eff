"""From a loaded project to the jobs of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import date, datetime
from typing import TypedDict

from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_file import SourceConfig
from tallymark.config.pipeline_folders import Pipeline
from tallymark.config.query_files import Transform
from tallymark.errors import Unsupported
from tallymark.flow.inspect.graph import transform_references
from tallymark.flow.job import Job, Query, Task
from tallymark.flow.lease import holder_name
from tallymark.flow.quality import quality_of
from tallymark.flow.select import NamedDestination, named_destination
from tallymark.flow.transform.archive import refuse_remote_files
from tallymark.flow.transform.backfill import refuse_rerun
from tallymark.ledger import Ledger
from tallymark.model.batch import code_hash
from tallymark.model.report import Cancellation, Event, Step
from tallymark.model.transform import Rerun
from tallymark.spark import Sessions
from tallymark.templates import References


class LoadOptions(TypedDict, total=False):
    """What a command may ask of its loads, beside what is declared."""

    allow_deletes: bool  # more than the guard permits
    full_refresh: bool  # ask transforms for all their rows, and replace their tables by them
    since: str | date | None  # ask transforms for the rows of a window: from here on
    until: str | date | None  # and before this


def pipeline_job(
    project: LoadedProject,
    pipeline: Pipeline,
    *,
    ledger: Ledger,
    sessions: Sessions,
    run_id: str,
    clock: Callable[[], datetime],
    on_event: Callable[[Event], None],
    options: LoadOptions,
    cancellation: Cancellation | None = None,
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
        quality=quality_of(project, pipeline),
    )
    return Job(
        task=task,
        ledger=ledger,
        run_id=run_id,
        holder=holder_name(),
        start_spark=lambda: sessions.isolated(
            lambda text: on_event(Event("", Step.SPARK, text, run_id=run_id))
        ),
        open_destination=destination.open,
        quarantine_root=project.quarantine_root,
        clock=clock,
        on_event=on_event,
        cancellation=cancellation or Cancellation(),
        locator=destination.locator(),
        destination_of=lambda name: _place(project, name),
    )


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
        refuse_remote_files([files] if isinstance(files, str) else files)
    elif pipeline.transform is not None:
        refuse_remote_files([project.config.landing_zones])
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


def _place(project: LoadedProject, name: str) -> tuple[NamedDestination, str]:
    pipeline = project.pipelines[name]
    return named_destination(project, pipeline.destination), pipeline.table
