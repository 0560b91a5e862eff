"""The JSON documents of Tallymark: their shapes, the version of the shapes, and their JSON Schemas.

A document is an envelope around the result of a command. A result has the shape of its report: its fields,
then the properties in `COMPUTED`. The command line prints these documents, and every other interface returns
the same ones. docs/reference/json.md describes them.
"""

from __future__ import annotations

import builtins
import json
import math
import types
import typing
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from tallymark.model.graph import GraphNode, PipelineLineage
from tallymark.model.report import (
    BatchRecord,
    Failure,
    Finding,
    MermaidDiagram,
    PipelineReport,
    PipelineStatus,
    PlanReport,
    PrepareReport,
    Preview,
    ProjectCreated,
    QuarantinedRow,
    QuarantineSummary,
    Requeued,
    RowsDropped,
    RowsExported,
    RunReport,
    SchemasWritten,
    SettingsReport,
    VersionNumber,
)
from tallymark.model.section import redact

VERSION = 1  # grows when a field is removed or changes its meaning; a new field does not count

# The result of each command. `--version` has no command; its entry is `version`.
RESULTS: Mapping[str, Any] = {
    "init": ProjectCreated,
    "run": RunReport,
    "plan": list[PlanReport],
    "preview": Preview,
    "status": list[PipelineStatus],
    "history": list[BatchRecord],
    "requeue": Requeued,
    "recover": list[PipelineReport],
    "quarantine list": list[QuarantineSummary],
    "quarantine show": list[QuarantinedRow] | RowsExported,
    "quarantine replay": PipelineReport,
    "quarantine drop": RowsDropped,
    "config": SettingsReport,
    "graph": list[GraphNode] | list[PipelineLineage] | MermaidDiagram,
    "validate": list[Finding],
    "doctor": list[Finding],
    "prepare": PrepareReport,
    "schema": dict[str, dict[str, object]] | SchemasWritten,
    "version": VersionNumber,
}

# Properties that are part of a document, after the fields.
COMPUTED: Mapping[type, tuple[str, ...]] = {PipelineReport: ("counts",), RunReport: ("ok",)}

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SHAPES: Mapping[Any, dict[str, object]] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Path: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    object: {},  # a value of a row, a setting or a fact: anything
}


def document(
    command: str | None, result: object, error: Failure | None = None, *, ok: bool, version: str
) -> dict[str, object]:
    """The document of a command. `version` is that of the program."""
    content: dict[str, object] = {
        "tallymark": version,
        "schema": VERSION,
        "command": command,
        "ok": ok,
        "result": json_value(result),
    }
    if error is not None:
        content["error"] = json_value(error)
    return content


def as_text(content: Mapping[str, object]) -> str:
    """A document, or its schema, as it is printed."""
    # ASCII only: a file name that is not UTF-8 holds lone surrogates, which no encoding accepts.
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def json_value(value: object) -> object:
    """A report, or a value of a table's row, in the types of JSON. Secrets are hidden."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Enum():
            return json_value(value.value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes() | bytearray():
            return value.hex()
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple() | Set():
            return [json_value(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {name: json_value(getattr(value, name)) for name in _names(type(value))}
        case _:  # text, paths, decimals, intervals
            return redact(str(value))


def schema() -> dict[str, object]:
    """The JSON Schema of all documents. Every field is required, except `error`. Unknown fields are allowed,
    because later versions of the program may add some."""
    definitions: dict[str, object] = {}
    return {
        "$schema": _DIALECT,
        "title": "A document of tallymark --json",
        "oneOf": [_document_shape(name, definitions) for name in RESULTS],
        "$defs": definitions,
    }


def schema_of(name: str) -> dict[str, object]:
    """The JSON Schema of one document, by its name in `RESULTS`."""
    definitions: dict[str, object] = {}
    return {"$schema": _DIALECT, **_document_shape(name, definitions), "$defs": definitions}


def _document_shape(name: str, definitions: dict[str, object]) -> dict[str, object]:
    option = f"--{name}" if name == "version" else name
    return {
        "title": f"tallymark {option} --json",
        "type": "object",
        "properties": {
            "tallymark": {"type": "string"},
            "schema": {"const": VERSION},
            "command": {"const": None if name == "version" else name},
            "ok": {"type": "boolean"},
            "result": _shape(RESULTS[name] | None, definitions),
            "error": _shape(Failure, definitions),
        },
        "required": ["tallymark", "schema", "command", "ok", "result"],
    }


def _shape(kind: Any, definitions: dict[str, object]) -> dict[str, object]:
    """The schema of what `json_value` returns for a value of this type. Reports go to `definitions`."""
    if kind in _SHAPES:
        return _SHAPES[kind]
    arguments = get_args(kind)
    match get_origin(kind):
        case types.UnionType | typing.Union:
            return {"anyOf": [_shape(each, definitions) for each in arguments]}
        case builtins.list | builtins.tuple:
            return {"type": "array", "items": _shape(arguments[0], definitions)}
        case builtins.dict:
            return {"type": "object", "additionalProperties": _shape(arguments[1], definitions)}
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = _report_shape(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _report_shape(report: type, definitions: dict[str, object]) -> dict[str, object]:
    kinds = get_type_hints(report)
    for name in COMPUTED.get(report, ()):
        kinds[name] = get_type_hints(getattr(report, name).fget)["return"]
    names = _names(report)
    return {
        "type": "object",
        "properties": {name: _shape(kinds[name], definitions) for name in names},
        "required": list(names),
    }


def _names(report: type) -> tuple[str, ...]:
    return (*(field.name for field in fields(report)), *COMPUTED.get(report, ()))
