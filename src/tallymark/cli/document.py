"""The one JSON document of `--json`. Its shapes are described in docs/reference/json.md."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tallymark.cli.blocks import Answer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA = 1  # grows when a field is removed or changes its meaning; new fields do not count


def document(answer: Answer, command: str | None, version: str) -> str:
    content: dict[str, object] = {
        "tallymark": version,
        "schema": SCHEMA,
        "command": command,
        "ok": answer.ok,
        "result": plain(answer.result),
    }
    if answer.failure is not None:
        content["error"] = plain(answer.failure)
    # ASCII only: file names that are not UTF-8 hold lone surrogates, which no encoding takes.
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def plain(value: object) -> object:
    """Values of the model, and values of table rows, as JSON has them."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Enum():
            return plain(value.value)
        case str():
            return _redacted(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes() | bytearray():
            return value.hex()
        case Path():
            return _redacted(str(value))
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | Set():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _fields(value)
        case _:
            return _redacted(str(value))


def _fields(value: DataclassInstance) -> dict[str, object]:
    from tallymark.model.report import Discovery, PipelineReport, PipelineStatus, Preview, RunReport

    result: dict[str, object] = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    match value:
        case PipelineReport():
            result["counts"] = plain(value.counts)
        case RunReport():
            result["ok"] = value.ok
        case Discovery():
            result["duplicates"] = _named(value.duplicates, ("path", "repeats"))
            result["waiting"] = _named(value.waiting, ("path", "reason"))
        case PipelineStatus():
            result["failed_files"] = _named(value.failed_files, ("path", "attempts", "error"))
        case Preview():
            result["inputs"] = _named(value.inputs, ("name", "version"))
            result["schema"] = _named(value.schema, ("name", "type"))
        case _:
            pass
    return result


def _named(rows: tuple[tuple[object, ...], ...], names: tuple[str, ...]) -> list[dict[str, object]]:
    return [{name: plain(item) for name, item in zip(names, row, strict=True)} for row in rows]


def _redacted(text: str) -> str:
    from tallymark.model.secrets import redact

    return redact(text)
