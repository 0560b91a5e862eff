"""Files that commands write at a path given by the user."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from tallymark.errors import ConfigError
from tallymark.model.report import QuarantinedRow

EXPORT_ENDINGS = (".csv", ".ndjson", ".jsonl")


def write_text(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}", hint="choose a path that you can write to"
        ) from error
    return path


def check_export(path: Path) -> None:
    """Called before any row is read: a wrong file name must not cost the user a wait."""
    if path.suffix not in EXPORT_ENDINGS:
        found = f"unknown file ending {path.suffix}" if path.suffix else "the file has no ending"
        raise ConfigError(
            f"--export {path}: {found}, so the format is not clear",
            hint=f"use one of {', '.join(EXPORT_ENDINGS)}",
        )


def export_rows(path: Path, rows: Sequence[QuarantinedRow]) -> Path:
    return write_text(path, _as_csv(rows) if path.suffix == ".csv" else _as_ndjson(rows))


def _as_csv(rows: Sequence[QuarantinedRow]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(QuarantinedRow)])
    writer.writeheader()
    writer.writerows({**asdict(row), "quarantined_at": row.quarantined_at.isoformat()} for row in rows)
    return buffer.getvalue()


def _as_ndjson(rows: Sequence[QuarantinedRow]) -> str:
    return "".join(json.dumps(asdict(row), default=str) + "\n" for row in rows)
