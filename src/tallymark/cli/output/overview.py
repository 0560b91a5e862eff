"""What a project is: `init`, `config`, `graph`, `validate`, `doctor`, `prepare`, `schema`, `--version`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import assert_never

from tallymark.cli import screen as wording
from tallymark.cli.screen import LOAD_FAILED, WRONG_USE, Answer, Block, Code, Grid, Line, Tone
from tallymark.errors import ConfigError, TallymarkError
from tallymark.model.graph import (
    ALL_COLUMNS,
    ColumnSource,
    GraphNode,
    InputKind,
    PipelineKind,
    PipelineLineage,
)
from tallymark.model.report import (
    EffectiveSetting,
    Failure,
    Finding,
    MermaidDiagram,
    PrepareReport,
    ProjectCreated,
    SchemasWritten,
    SettingsReport,
    VersionNumber,
)


def init(folder: Path, created: Sequence[Path], pipeline: str | None) -> Answer:
    there = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    blocks: list[Block] = [Line(f"wrote {wording.path(str(path))}") for path in created]
    blocks.append(Line(f"see what it would load:  {there}tallymark plan", Tone.GOOD))
    blocks.append(Line(f"then load it:            {there}tallymark run", Tone.GOOD))
    if not pipeline:
        blocks.append(Line(f"load your own files:     {there}tallymark init --from FILE --pipeline NAME"))
    return Answer(result=ProjectCreated(folder, tuple(created), pipeline), blocks=tuple(blocks))


def settings(pipeline: str, found: Sequence[EffectiveSetting]) -> Answer:
    rows = tuple((setting.key, _setting_value(setting.value), setting.place) for setting in found)
    return Answer(
        result=SettingsReport(pipeline, tuple(found)),
        blocks=(Grid(("setting", "value", "from"), rows),),
    )


def _setting_value(value: object) -> str:
    """As it would be written in a file; `-` if there is none."""
    match value:
        case None | [] | "":
            return "-"
        case str() | date():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def graph(nodes: Sequence[GraphNode], *, as_mermaid: bool) -> Answer:
    if as_mermaid:
        drawn = "\n".join(_mermaid(nodes))
        return Answer(result=MermaidDiagram(drawn), blocks=(Code(drawn, "mermaid"),))
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
    """Names are quoted, and none of them holds a character that Mermaid would read inside quotes."""
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
            return f"{source.column} of an input whose columns are unknown"
        case _:
            assert_never(source.kind)


def validate(findings: Sequence[Finding]) -> Answer:
    return _findings(findings, ConfigError.code, WRONG_USE)


def doctor(findings: Sequence[Finding]) -> Answer:
    return _findings(findings, TallymarkError.code, LOAD_FAILED)


def _findings(findings: Sequence[Finding], code: str, exit_code: int) -> Answer:
    wrong = [finding for finding in findings if not finding.ok]
    if not wrong:
        line = Line(f"{wording.plural(len(findings), 'check')}: all good", Tone.GOOD)
        return Answer(list(findings), (*_finding_blocks(findings), line))
    text = f"{wording.plural(len(wrong), 'problem')} in {wording.plural(len(findings), 'check')}"
    failure = Failure(code, f"{text}; the first: {wrong[0].subject}: {wrong[0].detail}", wrong[0].fix)
    return Answer(
        result=list(findings),
        blocks=(*_finding_blocks(findings), Line(text, Tone.BAD)),
        failure=failure,
        exit_code=exit_code,
    )


def _finding_blocks(findings: Sequence[Finding]) -> Iterator[Block]:
    for finding in findings:
        if finding.ok and finding.fix:
            yield Line(f"warn   {finding.subject}: {finding.detail}", Tone.WARN)
            yield Line(f"       → {finding.fix}")
        elif finding.ok:
            yield Line(f"ok     {finding.subject}: {finding.detail}")
        else:
            yield Line(f"error  {finding.subject}: {finding.detail}", Tone.BAD)
            if finding.fix:
                yield Line(f"       → {finding.fix}")


def prepare(made: PrepareReport) -> Answer:
    size = f"{made.bytes / 1e6:.0f} MB"
    line = Line(f"wrote {wording.path(str(made.archive))} ({size}): Spark starts faster with it", Tone.GOOD)
    return Answer(result=made, blocks=(line,))


def schema(schemas: Mapping[str, Mapping[str, object]], written: Sequence[Path]) -> Answer:
    if written:
        blocks: tuple[Block, ...] = tuple(Line(f"wrote {path}") for path in written)
        return Answer(result=SchemasWritten(tuple(written)), blocks=blocks)
    return Answer(result=schemas, blocks=(Code(json.dumps(schemas, indent=2), "json"),))


def version(number: str) -> Answer:
    return Answer(result=VersionNumber(number), blocks=(Line(f"tallymark {number}"),))
