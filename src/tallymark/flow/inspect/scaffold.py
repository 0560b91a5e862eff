"""A pipeline for files like a given one: its columns, types and separator as found in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

from tallymark.config.load_project import LoadedProject
from tallymark.config.new_project import files_like, scaffold_pipeline
from tallymark.config.pipeline_file import SourceConfig
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy
from tallymark.sources.infer import infer_columns, with_other_separator
from tallymark.sources.new_files import discover, nothing_known
from tallymark.spark import Sessions


def propose_pipeline(
    project: LoadedProject,
    sessions: Sessions,
    name: str,
    sample: Path,
    strategy: str | None,
    unique_key: Sequence[str],
) -> Path:
    chosen = strategy or (Strategy.UPSERT if unique_key else Strategy.APPEND_ONLY)
    if chosen not in set(Strategy):
        raise ConfigError(f"unknown strategy {chosen}", hint="one of " + ", ".join(Strategy))
    source = SourceConfig(files=escape(str(sample)))
    found = discover(source, project.root, nothing_known, sessions.isolated, now=datetime.now(UTC))
    columns = infer_columns(sessions.isolated(), source, found.files, project.root)
    if resplit := with_other_separator(source, columns):
        source, columns = resplit, infer_columns(sessions.isolated(), resplit, found.files, project.root)
    separator = source.options.get("sep")
    return scaffold_pipeline(
        project,
        name,
        files_like(project, sample),
        columns,
        Strategy(chosen),
        unique_key,
        separator=None if separator is None else str(separator),
    )
