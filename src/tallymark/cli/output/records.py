"""What the ledger and the quarantine hold: `status`, `history`, `requeue`, `quarantine list`, `show` and
`drop`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tallymark.cli import screen as wording
from tallymark.cli.failure import failure_blocks
from tallymark.cli.screen import Answer, Block, Grid, Line, Tone
from tallymark.model.batch import FileState
from tallymark.model.report import (
    BatchRecord,
    PipelineStatus,
    QuarantinedRow,
    QuarantineSummary,
    Requeued,
    RowsDropped,
    RowsExported,
)


def status(statuses: Sequence[PipelineStatus]) -> Answer:
    return Answer(result=list(statuses), blocks=tuple(_status_blocks(statuses)))


def _status_blocks(statuses: Sequence[PipelineStatus]) -> Iterator[Block]:
    if not statuses:
        yield Line("no pipelines yet", Tone.WARN)
        return
    states = [state.value for state in FileState]
    shown = [s for s in states if s == FileState.COMMITTED or any(st.files.get(s) for st in statuses)]
    rows = [
        (
            item.pipeline,
            item.table,
            item.strategy,
            *(wording.number(item.files.get(state, 0)) for state in shown),
            wording.number(item.batches),
            wording.when(item.last_commit.committed_at if item.last_commit else None),
        )
        for item in statuses
    ]
    file_headers = tuple(state.lower() for state in shown)
    headers = ("pipeline", "table", "strategy", *file_headers, "batches", "last commit")
    yield Grid(headers, tuple(rows), frozenset((*file_headers, "batches")))
    for item in statuses:
        yield from _quality(item)
        yield from _problems(item)


def _quality(item: PipelineStatus) -> Iterator[Block]:
    if item.quality:
        yield Line(f"{item.pipeline}: quality: {wording.rules_passed(item.quality)}")
    for result in item.quality:
        if not result.passed:
            tone = Tone.BAD if result.stops else Tone.WARN
            yield Line(f"{item.pipeline}: quality {result.severity}: {wording.gate(result)}", tone)


def _problems(item: PipelineStatus) -> Iterator[Block]:
    for file in item.failed_files:
        tried = wording.plural(file.attempts, "attempt")
        text = f"{item.pipeline}: {wording.path(file.path)} failed after {tried}: {file.error}"
        yield Line(text, Tone.BAD)
    if item.failed_files:
        yield Line(f"  → fix the cause, then run: tallymark requeue {item.pipeline}")
    elif item.last_error:
        yield from failure_blocks(item.last_error, f"{item.pipeline}: last ")


def history(records: Sequence[BatchRecord]) -> Answer:
    blocks: list[Block] = []
    if records:
        closes = any(record.receipt and record.receipt.closed for record in records)
        labels = ("inserted", "updated", *(("closed",) if closes else ()), "deleted")
        headers = ("batch", "pipeline", "state", "files", *labels, "version", "when")
        rows = tuple(_history_row(record, labels) for record in records)
        blocks.append(Grid(headers, rows, frozenset(headers[3:-1])))
    else:
        blocks.append(Line("no batches yet", Tone.DIM))
    for record in records:
        if record.error:
            tried = wording.plural(record.attempts, "attempt")
            blocks += failure_blocks(record.error, f"{record.batch_id} after {tried}: ")
    return Answer(result=list(records), blocks=tuple(blocks))


def _history_row(record: BatchRecord, labels: Sequence[str]) -> tuple[str, ...]:
    receipt = record.receipt
    return (
        record.batch_id,
        record.pipeline,
        record.state.lower(),
        wording.number(record.files),
        *(wording.number(getattr(receipt.counts, label)) if receipt else "-" for label in labels),
        receipt.version if receipt else "-",
        wording.when(record.finished_at),
    )


def requeue(pipeline: str, count: int) -> Answer:
    if count:
        line = Line(f"the next run retries {wording.plural(count, 'file')} of {pipeline}", Tone.GOOD)
    else:
        line = Line(f"{pipeline} has no failed files", Tone.DIM)
    return Answer(result=Requeued(pipeline, count), blocks=(line,))


def quarantine_list(summaries: Sequence[QuarantineSummary]) -> Answer:
    if not summaries:
        return Answer(result=[], blocks=(Line("the quarantine is empty", Tone.GOOD),))
    rows = tuple(
        (
            item.pipeline,
            item.batch_id,
            wording.number(item.rows),
            wording.number(item.files),
            wording.when(item.quarantined_at),
            "; ".join(f"{wording.number(count)} × {reason}" for reason, count in item.reasons.items()),
        )
        for item in summaries
    )
    headers = ("pipeline", "batch", "rows", "files", "since", "reasons")
    return Answer(result=list(summaries), blocks=(Grid(headers, rows, frozenset({"rows", "files"})),))


def quarantine_show(
    rows: Sequence[QuarantinedRow], pipeline: str, limit: int, exported: Path | None = None
) -> Answer:
    if exported:
        line = Line(f"{wording.plural(len(rows), 'row')} written to {exported}", Tone.GOOD)
        return Answer(result=RowsExported(len(rows), exported), blocks=(line,))
    if not rows:
        return Answer(result=[], blocks=(Line(f"{pipeline} has no rows in the quarantine", Tone.GOOD),))
    headers = ("file", "row", "column", "reason", "content")
    cells = tuple(
        (
            wording.path(row.file),
            "?" if row.row is None else wording.number(row.row),
            row.column,
            row.reason,
            wording.value(row.raw),
        )
        for row in rows
    )
    blocks: list[Block] = [
        Grid(headers, cells, frozenset({"row"})),
        Line(f"fix the cause, then run: tallymark quarantine replay {pipeline}", Tone.DIM),
        Line("--json shows the ids of the rows, for quarantine drop --id", Tone.DIM),
    ]
    if len(rows) >= limit:
        blocks.insert(1, Line(f"the first {wording.number(limit)}; --limit shows more", Tone.DIM))
    return Answer(result=list(rows), blocks=tuple(blocks))


def dropped(pipeline: str, batch_id: str, count: int) -> Answer:
    line = Line(f"dropped {wording.plural(count, 'quarantined row')} of {pipeline}, batch {batch_id}")
    return Answer(result=RowsDropped(pipeline, batch_id, count), blocks=(line,))
