"""What reads what: `graph`, `graph --mermaid`, `graph --columns`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from tallymark.cli.blocks import Answer, Block, Code, Grid, Line, Tone
from tallymark.model.graph import GraphNode, PipelineKind
from tallymark.model.lineage import ALL_COLUMNS, ColumnSource, InputKind, PipelineLineage


def graph(nodes: Sequence[GraphNode], *, as_mermaid: bool) -> Answer:
    if as_mermaid:
        drawn = "\n".join(_mermaid(nodes))
        return Answer(result={"mermaid": drawn}, blocks=(Code(drawn, "mermaid"),))
    if not nodes:
        return Answer(result=[], blocks=(Line("no pipelines yet", Tone.WARN),))
    rows = tuple(
        (str(node.level), node.pipeline, str(node.kind), _inputs(node), ", ".join(node.read_by) or "-")
        for node in nodes
    )
    headers = ("level", "pipeline", "kind", "reads", "read by")
    return Answer(result=list(nodes), blocks=(Grid(headers, rows, frozenset({"level"})),))


def _inputs(node: GraphNode) -> str:
    return ", ".join([*node.reads, *(f"zone {zone}" for zone in node.landing_zones)]) or "-"


_SHAPES = {
    PipelineKind.FILES: ("[", "]"),
    PipelineKind.SQL: ("([", "])"),
    PipelineKind.PYTHON: ("{{", "}}"),
}


def _mermaid(nodes: Sequence[GraphNode]) -> Iterator[str]:
    """Names have no characters that Mermaid minds once they are in quotes."""
    ids: dict[tuple[str, str], str] = {}

    def identity(kind: str, name: str) -> str:
        return ids.setdefault((kind, name), f"n{len(ids)}")

    yield "flowchart LR"
    for node in nodes:
        left, right = _SHAPES[node.kind]
        yield f'  {identity("pipeline", node.pipeline)}{left}"{node.pipeline}"{right}'
    drawn = {node.pipeline for node in nodes}
    for node in nodes:
        for zone in node.landing_zones:
            is_new = ("zone", zone) not in ids
            place = identity("zone", zone)
            if is_new:
                yield f'  {place}[/"{zone}"/]'
            yield f"  {place} --> {identity('pipeline', node.pipeline)}"
        for name in node.reads:
            if name in drawn:
                yield f"  {identity('pipeline', name)} --> {identity('pipeline', node.pipeline)}"


def lineage(pipelines: Sequence[PipelineLineage]) -> Answer:
    blocks: list[Block] = []
    for traced in pipelines:
        blocks.append(Line(traced.pipeline, Tone.HEADING))
        if traced.unknown:
            blocks.append(Line(f"  {traced.unknown}", Tone.DIM))
        for column in traced.columns:
            name = "all columns" if column.column == ALL_COLUMNS else column.column
            blocks.append(Line(f"  {name} ← {', '.join(map(_source, column.sources)) or 'no column'}"))
    return Answer(result=list(pipelines), blocks=tuple(blocks))


def _source(source: ColumnSource) -> str:
    everything = source.column == ALL_COLUMNS
    match source.kind:
        case InputKind.PIPELINE:
            return f"all columns of {source.name}" if everything else f"{source.name}.{source.column}"
        case InputKind.LANDING_ZONE:
            name = f"zone {source.name}"
            return f"all columns of {name}" if everything else f"{source.column} of {name}"
        case InputKind.UNKNOWN:
            return f"{source.column} of an input whose columns are not known"
        case _:
            assert_never(source.kind)
