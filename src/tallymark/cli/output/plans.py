"""What a load would do: `plan`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tallymark.cli.blocks import ALL_GOOD, LOAD_FAILED, Answer, Block, Code, Line, Tone
from tallymark.cli.failure import failure_blocks
from tallymark.cli.output import words
from tallymark.errors import GateFailed, GuardTripped
from tallymark.model.gate import GateResult
from tallymark.model.report import BadRow, Failure, PlanReport, RowSample

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
    """A plan that says the load would fail answers as the load would."""
    if report.failure:
        return report.failure
    if report.guards:
        return Failure(GuardTripped.code, f"{report.pipeline}: {report.guards[0]}")
    failed = [result for result in report.quality if result.stops]
    return Failure(GateFailed.code, f"{report.pipeline}: {failed[0]}") if failed else None


def _plan_blocks(report: PlanReport) -> Iterator[Block]:
    creates = " (the load creates it)" if report.creates_table and not report.empty else ""
    place = "view" if report.is_view else "table"
    yield Line(f"{report.pipeline} → {place} {report.table}{creates}", Tone.HEADING)
    if report.failure:
        yield from failure_blocks(report.failure, "  ")
    if not report.files:
        if report.empty:
            yield Line("  nothing new to load", Tone.DIM)
        return
    yield Line(f"  files     {words.number(len(report.files))}: {words.names(report.files)}")
    if report.more_files:
        yield Line(f"            {words.plural(report.more_files, 'file')} wait for further batches")
    yield Line(f"  shape     {report.shape}: {report.reason}")
    if report.way:
        yield Line(f"  way       {report.way}")
    if not report.is_view:
        counts = words.counts_in_words(report.counts)
        yield Line(f"  rows      {words.number(report.counts.total)} read: {counts}")
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
    """Rules that only warn are among the warnings."""
    if results:
        yield Line(f"  quality   {words.rules_in_words(results)}")
    for result in results:
        if result.stops:
            yield Line(f"  quality   would stop the load: {words.gate(result)}", Tone.BAD)


def _sample_blocks(samples: Sequence[RowSample], key: Sequence[str]) -> Iterator[Block]:
    if samples:
        yield Line("  samples")
    for sample in samples:
        tone = TONES.get(sample.label, Tone.DIM)
        yield Line(f"    {sample.label:<9} {_row_in_words(sample, key)}", tone)


def _row_in_words(sample: RowSample, key: Sequence[str]) -> str:
    """`id=7, amount=10 → 12`: of a row that changes, the key and what differs."""
    cells = []
    for column, before, after, differs in sample.cells(key):
        old = f"{words.value(before)} → " if differs else ""
        cells.append(f"{column}={old}{words.value(after)}")
    return ", ".join(cells)


def _bad_row_blocks(bad_rows: Sequence[BadRow], rejected: int) -> Iterator[Block]:
    if bad_rows:
        yield Line(f"  bad rows  {words.number(rejected)}, kept aside by the load", Tone.WARN)
    for bad in bad_rows:
        place = f"{words.path(bad.file)} row {bad.row if bad.row is not None else '?'}"
        column = f", {bad.column}" if bad.column else ""
        yield Line(f"    {place}{column}: {bad.reason}: {words.value(bad.raw)}", Tone.WARN)
