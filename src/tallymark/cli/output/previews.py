"""What a pipeline's source gives: `preview`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tallymark.cli.blocks import Answer, Block, Code, Grid, Line, Tone
from tallymark.cli.output import words
from tallymark.model.report import Preview


def preview(found: Preview, *, with_plan: bool) -> Answer:
    shown = found if with_plan else replace(found, spark_plan="")
    return Answer(result=shown, blocks=tuple(_blocks(shown)))


def _blocks(found: Preview) -> Iterator[Block]:
    yield Line(found.pipeline, Tone.HEADING)
    for name, version in found.inputs:
        yield Line(f"  reads     {words.path(name)} ({version})")
    if found.query:
        yield Code(found.query, "sql")
    yield Grid(("column", "type"), found.schema)
    if found.rows:
        columns = tuple(name for name, _ in found.schema)
        yield Grid(columns, tuple(tuple(words.value(row[c]) for c in columns) for row in found.rows))
    yield Line(f"{words.plural(len(found.rows), 'row')} shown; nothing was written", Tone.DIM)
    if found.spark_plan:
        yield Code(found.spark_plan, "text")
