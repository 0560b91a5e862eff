"""What stands before the first load: `init`, `prepare`, `schema`, `--version`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tallymark.cli.blocks import Answer, Block, Code, Line, Tone
from tallymark.cli.output import words
from tallymark.model.report import Prepared


def init(folder: Path, created: Sequence[Path], pipeline: str | None) -> Answer:
    there = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    blocks: list[Block] = [Line(f"wrote {words.path(str(path))}") for path in created]
    blocks.append(Line(f"see what it would load:  {there}tallymark plan", Tone.GOOD))
    blocks.append(Line(f"then load it:            {there}tallymark run", Tone.GOOD))
    if not pipeline:
        blocks.append(Line(f"load files of your own:  {there}tallymark init --from FILE --pipeline NAME"))
    result = {"folder": folder, "created": list(created), "pipeline": pipeline}
    return Answer(result=result, blocks=tuple(blocks))


def prepare(made: Prepared) -> Answer:
    size = f"{made.bytes / 1e6:.0f} MB"
    line = Line(f"wrote {words.path(str(made.archive))} ({size}): later starts of Spark use it", Tone.GOOD)
    return Answer(result=made, blocks=(line,))


def schema(schemas: Mapping[str, Mapping[str, object]], written: Sequence[Path]) -> Answer:
    if written:
        blocks: tuple[Block, ...] = tuple(Line(f"wrote {path}") for path in written)
        return Answer(result={"written": list(written)}, blocks=blocks)
    return Answer(result=schemas, blocks=(Code(json.dumps(schemas, indent=2), "json"),))


def version(number: str) -> Answer:
    return Answer(result={"version": number}, blocks=(Line(f"tallymark {number}"),))
