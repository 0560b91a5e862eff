"""The configuration files described for editors (JSON Schema) and for readers (reference tables)."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tallymark.config.keys import ANY_ITEM, Key, keys_of
from tallymark.config.pipeline import PipelineConfig
from tallymark.config.problem import key_text
from tallymark.config.project import ProjectConfig

PROJECT_SCHEMA = "tallymark.schema.json"
PIPELINE_SCHEMA = "pipeline.schema.json"

_FILES: dict[str, tuple[type[BaseModel], str, str]] = {
    PROJECT_SCHEMA: (
        ProjectConfig,
        "tallymark.yaml",
        "A Tallymark project: ledger, Spark settings, named destinations. Every key has a default.",
    ),
    PIPELINE_SCHEMA: (
        PipelineConfig,
        "config.yaml",
        "A Tallymark pipeline: one table, where its rows come from and how they are merged.",
    ),
}


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schema (draft 2020-12) of both files, by file name."""
    return {name: _schema(name, *facts) for name, facts in _FILES.items()}


def schema_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _schema(name: str, model: type[BaseModel], title: str, description: str) -> dict[str, Any]:
    body = model.model_json_schema(by_alias=True, mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:tallymark:{name}",
        **body,
        "title": title,
        "description": description,
    }


def write_reference(folder: Path) -> list[Path]:
    """Writes both schemas, and the tables between the marks in configuration.md, into docs/reference."""
    written = []
    for name, schema in schemas().items():
        (folder / name).write_text(schema_text(schema), encoding="utf-8")
        written.append(folder / name)
    page = folder / "configuration.md"
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return [*written, page]


def with_tables(page: str) -> str:
    """The page with fresh tables between its marks; what people wrote around them stays."""
    for model, title, _ in _FILES.values():
        begin, end = f"<!-- begin keys of {title} -->", f"<!-- end keys of {title} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{reference_table(model)}{end}{after}"
    return page


def reference_table(model: type[BaseModel]) -> str:
    """A Markdown table of every key: path, type, default, meaning."""
    rows: dict[str, Key] = {}
    for key in keys_of(model):
        path = key_text(key.path).replace(f"[{ANY_ITEM}]", "[]")
        known = rows.get(path)
        rows[path] = key if known is None else _both(known, key)
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{path}` | {key.kind} | {_default(key)} | {_cell(key)} |" for path, key in rows.items()]
    return "\n".join(lines) + "\n"


def _both(known: Key, key: Key) -> Key:
    """One key of several kinds of destination: `type` has one word in each, `path` a meaning in each."""
    kinds = dict.fromkeys([*known.kind.split(" or "), key.kind])
    told = bool(key.description) and key.description not in known.description
    meaning = "; ".join([known.description, key.description]) if told else known.description
    return Key(key.path, " or ".join(kinds), known.default, meaning)


def _default(key: Key) -> str:
    match key.default:
        case _ if key.required:
            return "required"
        case None | "" | [] | {} | BaseModel():
            return ""
        case dict():
            return ""  # the meaning says it
        case Enum():
            return f"`{key.default.value}`"
        case bool() | list():
            return f"`{json.dumps(key.default)}`"
        case _:
            return f"`{key.default}`"


def _cell(key: Key) -> str:
    return (key.description or "Which kind of destination").replace("|", "\\|").replace("<", "&lt;")
