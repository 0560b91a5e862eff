"""What a load would do and what it would read: `plan`, `preview`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tallymark.cli import screen as wording
from tallymark.cli.failure import failure_blocks
from tallymark.cli.screen import ALL_GOOD, LOAD_FAILED, Answer, Block, Code, Grid, Line, Tone
from tallymark.errors import GateFailed, GuardTripped
from tallymark.model.gate import GateResult
from tallymark.model.report import BadRow, Failure, PlanReport, Preview, RowSample

TONES = {"insert": Tone.GOOD, "update": Tone.WARN, "close": Tone.WARN, "delete": Tone.BAD}


def plan(reports: Sequence[PlanReport], with_sql: bool) -> Answer:
    failure = next(filter(None, map(_what_stops, reports)), None)
    shown = [report if with_sql or report.is_view else replace(report, sql="") for report in reports]
    return Answer(
        result=list(shown),
        blocks=tuple(block for report in shown for block in _plan_blocks(report)),
        failure=failure,
        exit_code=LOAD_FAILED if failure else ALL_GOOD,
    )


def _what_stops(report: PlanReport) -> Failure | None:
    """If the load would fail, the plan fails with the same error."""
    if report.failure:
        return report.failure
    if report.guards:
        return Failure(GuardTripped.code, f"{report.pipeline}: {report.guards[0]}")
    failed = [result for result in report.quality if result.stops]
    return Failure(GateFailed.code, f"{report.pipeline}: {failed[0]}") if failed else None


def _plan_blocks(report: PlanReport) -> Iterator[Block]:
    creates = " (created by the load)" if report.creates_table and not report.empty else ""
    kind = "view" if report.is_view else "table"
    yield Line(f"{report.pipeline} → {kind} {report.table}{creates}", Tone.HEADING)
    if report.failure:
        yield from failure_blocks(report.failure, "  ")
    if not report.files:
        if report.empty:
            yield Line("  nothing new to load", Tone.DIM)
        return
    yield Line(f"  files     {wording.number(len(report.files))}: {wording.names(report.files)}")
    if report.more_files:
        yield Line(f"            {wording.plural(report.more_files, 'more file')} in later batches")
    yield Line(f"  shape     {report.shape}: {report.reason}")
    if report.way:
        yield Line(f"  write     {report.way}")
    if not report.is_view:
        counts = wording.counts_in_words(report.counts)
        yield Line(f"  rows      {wording.number(report.counts.total)} read: {counts}")
    for change in report.schema_changes:
        yield Line(f"  schema    {change}", Tone.WARN)
    for guard in report.guards:
        yield Line(f"  guard     would stop the load: {guard}", Tone.BAD)
    yield from _quality_blocks(report.quality)
    for warning in report.warnings:
        yield Line(f"  warning   {warning}", Tone.WARN)
    yield from _sample_blocks(report.samples, report.key)
    yield from _bad_row_blocks(report.bad_rows, report.counts.rejected)
    if report.sql:
        yield Line("  sql")
        yield Code(report.sql, "sql")


def _quality_blocks(results: Sequence[GateResult]) -> Iterator[Block]:
    """Failed rules of severity `warn` are among the plan's warnings."""
    if results:
        yield Line(f"  quality   {wording.rules_passed(results)}")
    for result in results:
        if result.stops:
            yield Line(f"  quality   would stop the load: {wording.gate(result)}", Tone.BAD)


def _sample_blocks(samples: Sequence[RowSample], key: Sequence[str]) -> Iterator[Block]:
    if samples:
        yield Line("  samples")
    for sample in samples:
        tone = TONES.get(sample.label, Tone.DIM)
        yield Line(f"    {sample.label:<9} {_row_in_words(sample, key)}", tone)


def _row_in_words(sample: RowSample, key: Sequence[str]) -> str:
    """`id=7, amount=10 → 12`: the key and the values that change."""
    cells = []
    for column, before, after, differs in sample.cells(key):
        old = f"{wording.value(before)} → " if differs else ""
        cells.append(f"{column}={old}{wording.value(after)}")
    return ", ".join(cells)


def _bad_row_blocks(bad_rows: Sequence[BadRow], rejected: int) -> Iterator[Block]:
    if bad_rows:
        yield Line(f"  bad rows  {wording.number(rejected)}, to be quarantined by the load", Tone.WARN)
    for bad in bad_rows:
        place = f"{wording.path(bad.file)} row {bad.row if bad.row is not None else '?'}"
        column = f", {bad.column}" if bad.column else ""
        yield Line(f"    {place}{column}: {bad.reason}: {wording.value(bad.raw)}", Tone.WARN)


def preview(found: Preview, *, with_plan: bool) -> Answer:
    shown = found if with_plan else replace(found, spark_plan="")
    return Answer(result=shown, blocks=tuple(_preview_blocks(shown)))


def _preview_blocks(found: Preview) -> Iterator[Block]:
    yield Line(found.pipeline, Tone.HEADING)
    for read in found.inputs:
        yield Line(f"  reads     {wording.path(read.name)} ({read.version})")
    if found.query:
        yield Code(found.query, "sql")
    yield Grid(("column", "type"), tuple((column.name, column.type) for column in found.schema))
    if found.rows:
        names = tuple(column.name for column in found.schema)
        yield Grid(names, tuple(tuple(wording.value(row[name]) for name in names) for row in found.rows))
    yield Line(f"{wording.plural(len(found.rows), 'row')} shown; nothing was written", Tone.DIM)
    if found.spark_plan:
        yield Code(found.spark_plan, "text")
