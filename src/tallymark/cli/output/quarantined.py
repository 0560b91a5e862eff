"""Rows kept aside: `quarantine list`, `show`, `drop`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallymark.cli.blocks import Answer, Block, Grid, Line, Tone
from tallymark.cli.output import words
from tallymark.model.report import QuarantinedRow, QuarantineSummary


def quarantine_list(summaries: Sequence[QuarantineSummary]) -> Answer:
    if not summaries:
        return Answer(result=[], blocks=(Line("the quarantine is empty", Tone.GOOD),))
    rows = tuple(
        (
            item.pipeline,
            item.batch_id,
            words.number(item.rows),
            words.number(item.files),
            words.when(item.quarantined_at),
            "; ".join(f"{words.number(count)} × {reason}" for reason, count in item.reasons.items()),
        )
        for item in summaries
    )
    headers = ("pipeline", "batch", "rows", "files", "since", "reasons")
    return Answer(result=list(summaries), blocks=(Grid(headers, rows, frozenset({"rows", "files"})),))


def quarantine_show(
    rows: Sequence[QuarantinedRow], pipeline: str, limit: int, exported: Path | None = None
) -> Answer:
    if exported:
        line = Line(f"{words.plural(len(rows), 'row')} written to {exported}", Tone.GOOD)
        return Answer(result={"rows": len(rows), "file": exported}, blocks=(line,))
    if not rows:
        return Answer(result=[], blocks=(Line(f"no rows of {pipeline} are in quarantine", Tone.GOOD),))
    headers = ("file", "row", "column", "reason", "content")
    cells = tuple(
        (
            words.path(row.file),
            "?" if row.row is None else words.number(row.row),
            row.column,
            row.reason,
            words.value(row.raw),
        )
        for row in rows
    )
    blocks: list[Block] = [
        Grid(headers, cells, frozenset({"row"})),
        Line(f"repair the cause, then: tallymark quarantine replay {pipeline}", Tone.DIM),
        Line("--json shows the ids of rows, for quarantine drop --id", Tone.DIM),
    ]
    if len(rows) >= limit:
        blocks.insert(1, Line(f"the first {words.number(limit)}; see more with --limit", Tone.DIM))
    return Answer(result=list(rows), blocks=tuple(blocks))


def dropped(pipeline: str, batch_id: str, count: int) -> Answer:
    line = Line(f"{words.plural(count, 'row')} of {pipeline}, batch {batch_id}, dropped from the quarantine")
    return Answer(result={"pipeline": pipeline, "batch_id": batch_id, "rows": count}, blocks=(line,))
