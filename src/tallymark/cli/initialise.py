"""`tallymark init`: asks on a terminal for what the flags leave open."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from tallymark.cli import output
from tallymark.cli.blocks import Answer
from tallymark.cli.opening import options_of
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy


def init(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Argument(help="Default: the present folder.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the project; default: the folder's name.")] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", exists=True, dir_okay=False, help="A data file to make a pipeline for."
        ),
    ] = None,
    pipeline: Annotated[str | None, typer.Option(metavar="NAME", help="Such as silver.orders.")] = None,
    strategy: Annotated[
        Strategy | None, typer.Option(help="Default: upsert with a key, append_only without.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Unique key; may be given several times.")
    ] = None,
) -> Answer:
    """Make a project that runs, or add a pipeline to one."""
    from tallymark import project

    root = folder or options_of(context).project
    exists = _is_project(root, look_above=folder is None)
    keys = tuple(part.strip() for item in key or () for part in item.split(",") if part.strip())
    if _may_ask(context):
        if not exists and name is None:
            name = typer.prompt("Name of the project", default=root.resolve().name)
        if from_file is None:
            from_file = _ask_file()
        if from_file is not None:
            pipeline = pipeline or typer.prompt("Name of the pipeline", default=_suggested_name(from_file))
            if not keys and strategy is None:
                keys = _ask_key()
    _check_flags(from_file, pipeline, strategy, keys)

    created: list[Path] = []
    if not exists or from_file is None:
        # The sample would only be in the way of a pipeline for the user's own data.
        created += project.init_project(root, name, with_sample=from_file is None)
    if from_file is not None and pipeline is not None:
        created.append(project.init_pipeline(root, pipeline, from_file, strategy, keys))
    return output.init(root, created, pipeline)


def _is_project(root: Path, look_above: bool) -> bool:
    from tallymark.config.load import find_project
    from tallymark.config.pipelines import PROJECT_FILE

    if not look_above:
        return (root / PROJECT_FILE).is_file()
    try:
        find_project(root)
    except ConfigError:
        return False
    return True


def _may_ask(context: typer.Context) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not options_of(context).json


def _ask_file() -> Path | None:
    """Asked again until it exists: a wrong path would only fail later."""
    while True:
        text = typer.prompt("A data file to load (empty: none yet)", default="", show_default=False).strip()
        if not text:
            return None
        if Path(text).is_file():
            return Path(text)
        typer.echo(f"  there is no file {text}")


def _ask_key() -> tuple[str, ...]:
    question = "Columns that identify a row, separated by commas (empty: none)"
    text = typer.prompt(question, default="", show_default=False)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _suggested_name(file: Path) -> str:
    word = re.sub(r"\W+", "_", file.name.split(".")[0]).strip("_").lower()
    return f"silver.{word or 'table'}"


def _check_flags(
    from_file: Path | None, pipeline: str | None, strategy: Strategy | None, keys: tuple[str, ...]
) -> None:
    if from_file is None and (pipeline or strategy or keys):
        raise ConfigError(
            "--pipeline, --strategy and --key describe a pipeline, and --from is missing",
            hint="add --from FILE with a sample of the data",
        )
    if from_file is not None and not pipeline:
        raise ConfigError(
            "--from needs a name for the pipeline", hint=f"add --pipeline {_suggested_name(from_file)}"
        )
