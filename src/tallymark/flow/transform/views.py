"""`materialized: view`: the destination keeps the query itself, and runs it whenever the view is read.

A view goes the way of every result of a transform: looked for, claimed, applied with its marker, recorded.
Its content is its query in the destination's own SQL. So it is made again when that changes, by the template
or by the columns of an input, and never because an input has other rows. No Spark is started for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_folders import Pipeline
from tallymark.config.query_files import Language, Transform
from tallymark.config.yaml_file import Problem, config_error
from tallymark.destinations.contract import ViewPlan, ViewQuery, Views
from tallymark.errors import CommitUnknown, SourceError, TallymarkError, Unsupported
from tallymark.flow.inspect.graph import transform_references
from tallymark.flow.job import Job, Query
from tallymark.model.batch import Batch, Pin, QueryResult, code_hash
from tallymark.model.receipt import Counts, Marker, Receipt
from tallymark.model.report import PlanReport, Step
from tallymark.model.types import quoted
from tallymark.templates import Context, Template, names_used, render

_NO_RUN = datetime(2000, 1, 1, tzinfo=UTC)  # a view must not use the time of the run

_NOT_FOR_VIEWS = {
    "this": ("a view keeps no rows that its query could continue from", "set materialized: table"),
    "table_exists": ("a view keeps no rows that its query could continue from", "set materialized: table"),
    "run_started_at": (
        "a view is created once and read later: it would keep the time at which it was created",
        "write current_timestamp(), or set materialized: table",
    ),
}


def refuse_wrong_views(project: LoadedProject) -> None:
    """Raises ConfigError with everything that is wrong with views and shows without their destination."""
    problems = [
        problem
        for pipeline in project.pipelines.values()
        if pipeline.is_view
        and pipeline.transform is not None
        and pipeline.transform.language is Language.SQL  # anything else is an error of the configuration
        for problem in _problems(project, pipeline, pipeline.transform)
    ]
    if problems:
        raise config_error(problems)


def _problems(project: LoadedProject, pipeline: Pipeline, transform: Transform) -> Iterator[Problem]:
    found = transform_references(transform)
    for one in found.refs:
        other = project.pipelines[one.name].destination
        if other != pipeline.destination:
            message = (
                f"{one.name} is in {other}, but a view in {pipeline.destination} reads only tables there"
            )
            hint = "set materialized: table: Spark reads from anywhere"
            yield Problem(transform.file, one.line, 0, "", message, hint)
    for zone in found.zones:
        message = "a view cannot read the files of a landing zone"
        hint = "load them with a pipeline of their own and use ref() on it, or set materialized: table"
        yield Problem(transform.file, zone.line, 0, "", message, hint)
    for name, line in names_used(Template(transform.file, transform.text)).items():
        if name in _NOT_FOR_VIEWS:
            why, hint = _NOT_FOR_VIEWS[name]
            yield Problem(transform.file, line, 0, "", f"{name}: {why}", hint)


def view_pin(job: Job, query: Query) -> tuple[Pin | None, tuple[tuple[str, str], ...]]:
    """None if an input does not exist yet; and what is deferred, with the reason."""
    plan = planned_view(job, query)
    if plan.missing:
        pipelines = _pipelines(query)
        return None, tuple((pipelines[one], "its table does not exist yet") for one in plan.missing)
    return _pin(plan), ()


def planned_view(job: Job, query: Query) -> ViewPlan:
    """Raises Unsupported for what the destination cannot express, NotATable if its name is taken."""
    return _views(job).plan(job.task.table, _view_query(job, query))


def make_view(job: Job, batch: Batch, fence: int, ensure_lease: Callable[[], None]) -> Receipt:
    """For a view what `load_batch` is for a table."""
    started = time.monotonic()
    plan = _plan_of(job, batch)
    job.stop_if_cancelled()
    ensure_lease()
    job.tell(Step.APPLY, "creating the view")
    marker = Marker.of(batch, fence, job.task.strategy, Counts())
    try:
        commit = _views(job).make(plan, marker)
    except TallymarkError:
        raise
    except Exception as error:
        raise CommitUnknown(
            f"{job.task.table}: whether the view was created is not known: {error}",
            hint="run again: the marker shows whether it was committed",
        ) from error
    return Receipt(
        batch_id=batch.id,
        pipeline=batch.pipeline,
        table=job.task.table,
        strategy=job.task.strategy,
        counts=Counts(),
        version=commit.version,
        sequence=batch.sequence,
        committed_at=commit.committed_at,
        way=commit.method,
        seconds=time.monotonic() - started,
    )


def explain_view(job: Job, batch: Batch, more: int) -> PlanReport:
    plan = _plan_of(job, batch)
    return PlanReport(
        pipeline=job.task.pipeline,
        table=job.task.table,
        strategy=job.task.strategy,
        shape="View",
        reason="the view gets a new query" if plan.replaces else "the query is kept, nothing is loaded",
        creates_table=not plan.replaces,
        counts=Counts(),
        files=batch.names,
        sql=plan.statement,
        more_files=more,
    )


def _plan_of(job: Job, batch: Batch) -> ViewPlan:
    """A retry creates the view that was registered, or nothing: the query may have changed since."""
    query = job.task.query
    assert query is not None  # noqa: S101  of a view
    plan = planned_view(job, query)
    assert isinstance(batch.contents, QueryResult)  # noqa: S101  of a view
    if plan.missing or _pin(plan).identity != batch.contents.pin.identity:
        raise SourceError(
            f"{query.transform.file}: the query or the columns of its inputs have changed since this batch "
            "was started; nothing was written",
            hint="run again: the view is created with the current query",
        )
    return plan


def _view_query(job: Job, query: Query) -> ViewQuery:
    relations = {pipeline: relation for relation, pipeline in _pipelines(query).items()}
    context = Context(
        strategy=job.task.settings.strategy,
        run_started_at=_NO_RUN,
        refs=lambda name: quoted(relations[name]),
        zones=lambda name: name,
        this="",
        variables=query.variables,
    )
    rendered = render(Template(query.transform.file, query.transform.text), context)
    tables = {relations[name]: job.connections.named_input(name)[1] for name in rendered.refs}
    return ViewQuery(rendered.sql, tables, query.transform.file)


def _pipelines(query: Query) -> dict[str, str]:
    """Pipelines by their names in the query; `a.b_c` and `a_b.c` get different ones."""
    named: dict[str, str] = {}
    for pipeline in query.refs:
        relation = f"tm_{pipeline.replace('.', '_').lower()}"
        while relation in named:
            relation += "_"
        named[relation] = pipeline
    return named


def _pin(plan: ViewPlan) -> Pin:
    return Pin(code_hash("view", plan.place, plan.sql))


def _views(job: Job) -> Views:
    views = job.destination.views
    if views is None:
        raise Unsupported(
            f"{job.task.pipeline}: {job.destination.capabilities.name} has no views",
            hint="set materialized: table",
        )
    return views
