"""`plan`: the same steps as a load up to the commit, then a report instead. Nothing is written."""

from __future__ import annotations

from dataclasses import replace

from tallymark.checks.split import Checked, bad_rows
from tallymark.destinations.contract import PreparedLoad
from tallymark.errors import TallymarkError
from tallymark.flow.claim import failure_of, planned_batch
from tallymark.flow.job import Job
from tallymark.flow.load import balanced, prepared_batch, tripped_guard, warnings_of
from tallymark.flow.quality import check_gates, gate_warnings
from tallymark.flow.transform.views import explain_view
from tallymark.model.batch import Batch
from tallymark.model.plan import AddColumn, ChangeType, Merge, Plan, SchemaChange
from tallymark.model.receipt import Counts
from tallymark.model.report import PlanReport, RowSample

_BAD_ROWS_SHOWN = 20


def explain_pipeline(job: Job, samples: int) -> PlanReport:
    """The plan of the next batch: an open one, else the first that a load would make."""
    try:
        planned = planned_batch(job)
    except TallymarkError as error:
        return _report(job, failure=error)
    if planned.batch is None:
        report = _report(job)
    else:
        report = explain_batch(job, planned.batch, planned.behind, samples)
    return replace(report, warnings=planned.warnings + report.warnings)


def explain_batch(job: Job, batch: Batch, more: int, samples: int) -> PlanReport:
    try:
        if job.task.is_view:
            return explain_view(job, batch, more)
        with prepared_batch(job, batch, for_commit=False) as (checked, plan, prepared):
            return _explain(job, batch, more, checked, plan, prepared, samples)
    except TallymarkError as error:
        return _report(job, failure=error)


def _explain(
    job: Job, batch: Batch, more: int, checked: Checked, plan: Plan, prepared: PreparedLoad, samples: int
) -> PlanReport:
    guard = tripped_guard(plan, prepared)
    quality = check_gates(job, plan, prepared)
    return PlanReport(
        pipeline=job.task.pipeline,
        table=job.task.table,
        strategy=str(plan.settings.strategy),
        shape=type(plan.shape).__name__,
        reason=plan.reason,
        creates_table=plan.creates_table,
        counts=balanced(prepared.counts, checked),
        files=batch.names,
        schema_changes=tuple(_in_words(change) for change in plan.schema_changes),
        guards=(guard,) if guard and not job.task.allow_deletes else (),
        warnings=warnings_of(plan, prepared) + gate_warnings(plan.table, quality),
        duplicates=prepared.duplicates.rows if prepared.duplicates else 0,
        key=plan.shape.match if isinstance(plan.shape, Merge) else (),
        samples=tuple(RowSample(str(s.label), s.before, s.after) for s in prepared.samples(samples)),
        bad_rows=tuple(bad_rows(checked, _BAD_ROWS_SHOWN)) if checked.rejected else (),
        way=f"{prepared.method.name}: {prepared.method.why}",
        sql=prepared.sql(),
        quality=quality,
        more_files=more,
    )


def _in_words(change: SchemaChange) -> str:
    match change:
        case AddColumn(column=column):
            return f"add column {column.name} {column.type}"
        case ChangeType(name=name, before=before, after=after):
            return f"change type of {name} from {before} to {after}"


def _report(job: Job, failure: TallymarkError | None = None) -> PlanReport:
    return PlanReport(
        pipeline=job.task.pipeline,
        table=job.task.table,
        strategy=job.task.strategy,
        shape="",
        reason="nothing new" if failure is None else "cannot be planned",
        creates_table=False,
        counts=Counts(),
        failure=failure_of(failure) if failure else None,
    )
