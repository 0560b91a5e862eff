"""What is on record: `status`, `history`, `requeue`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallymark.cli.blocks import Answer, Block, Grid, Line, Tone
from tallymark.cli.failure import failure_blocks
from tallymark.cli.output import words
from tallymark.model.batch import FileState
from tallymark.model.report import BatchRecord, PipelineStatus


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
            *(words.number(item.files.get(state, 0)) for state in shown),
            words.number(item.batches),
            words.when(item.last_commit.committed_at if item.last_commit else None),
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
        yield Line(f"{item.pipeline}: quality: {words.rules_in_words(item.quality)}")
    for result in item.quality:
        if not result.passed:
            tone = Tone.BAD if result.stops else Tone.WARN
            yield Line(f"{item.pipeline}: quality {result.severity}: {words.gate(result)}", tone)


def _problems(item: PipelineStatus) -> Iterator[Block]:
    for path, attempts, error in item.failed_files:
        tried = words.plural(attempts, "attempt")
        yield Line(f"{item.pipeline}: {words.path(path)} failed after {tried}: {error}", Tone.BAD)
    if item.failed_files:
        yield Line(f"  → repair what is wrong, then: tallymark requeue {item.pipeline}")
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
            tried = words.plural(record.attempts, "attempt")
            blocks += failure_blocks(record.error, f"{record.batch_id} after {tried}: ")
    return Answer(result=list(records), blocks=tuple(blocks))


def _history_row(record: BatchRecord, labels: Sequence[str]) -> tuple[str, ...]:
    receipt = record.receipt
    return (
        record.batch_id,
        record.pipeline,
        record.state.lower(),
        words.number(record.files),
        *(words.number(getattr(receipt.counts, label)) if receipt else "-" for label in labels),
        receipt.version if receipt else "-",
        words.when(record.finished_at),
    )


def requeue(pipeline: str, count: int) -> Answer:
    if count:
        text = f"{words.plural(count, 'file')} of {pipeline} will be tried again by the next run"
        line = Line(text, Tone.GOOD)
    else:
        line = Line(f"{pipeline} has no failed file to try again", Tone.DIM)
    return Answer(result={"pipeline": pipeline, "files": count}, blocks=(line,))
