"""The examples of docs/reference/strategies.md as data.

An example is what stands between an HTML comment `<!-- example: name -->` and the next heading or example: a
yaml block with the settings, and then, in this order and perhaps several times, tables and lines that begin
with a bold word:

    **Before**            the table as it is; without it there is none yet
    **Batch**             rows to load
    **Counts**: …         of that load: what is not named is 0
    **Refused**: `TM…`    instead of counts: the load stops with this code and nothing changes
    **After**             the table's rows now, in any order

A column is `name type` in a header; the type may be left out where an earlier table of the example has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "strategies.md"

_EXAMPLE = re.compile(r"(?ms)^<!-- example: ([\w-]+) -->\n(.*?)(?=^<!-- example: |^#|\Z)")
_YAML = re.compile(r"(?ms)^```yaml\n(.*?)^```")
_PART = re.compile(r"(?m)^\*\*(Before|Batch|After|Counts|Refused)\*\*(?:: (.*))?$((?:\n\s*)*(?:\|.*\n?)*)")


@dataclass(frozen=True)
class Rows:
    types: dict[str, str]  # by column, in the order of the header
    cells: list[list[str | None]]


@dataclass(frozen=True)
class Load:
    batch: Rows
    counts: dict[str, int] | None = None
    refused: str = ""
    after: Rows | None = None


@dataclass
class Example:
    name: str
    settings: dict[str, Any]
    before: Rows | None = None
    loads: list[Load] = field(default_factory=list)


def examples() -> list[Example]:
    return [_example(name, text) for name, text in _EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))]


def _example(name: str, text: str) -> Example:
    block = _YAML.search(text)
    assert block, f"{name}: no yaml"
    example = Example(name, YAML(typ="safe").load(block[1]))
    known: dict[str, str] = {}
    for title, line, table in _PART.findall(text):
        match title:
            case "Before":
                example.before = _rows(table, known)
            case "Batch":
                example.loads.append(Load(_rows(table, known)))
            case "Counts":
                counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", line)}
                example.loads[-1] = Load(example.loads[-1].batch, counts)
            case "Refused":
                example.loads[-1] = Load(example.loads[-1].batch, None, re.findall(r"`(TM\d+)`", line)[0])
            case "After":
                last = example.loads[-1]
                example.loads[-1] = Load(last.batch, last.counts, last.refused, _rows(table, known))
    return example


def _rows(table: str, known: dict[str, str]) -> Rows:
    lines = [line.strip().strip("|").split("|") for line in table.strip().splitlines()]
    head = [cell.strip().partition(" ") for cell in lines[0]]
    known.update({name: type_ for name, _, type_ in head if type_})
    cells = [[None if cell.strip() == "NULL" else cell.strip() for cell in line] for line in lines[2:]]
    return Rows({name: known[name] for name, _, _ in head}, cells)
