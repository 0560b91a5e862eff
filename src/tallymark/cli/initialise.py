"""`tallymark init`. On a terminal it asks for what the flags leave out."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from tallymark.cli import output
from tallymark.cli.arguments import common_options
from tallymark.cli.screen import Answer
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy


def init(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Argument(help="Default: the current folder.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the project. Default: the name of the folder.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Create a pipeline for this data file.",
        ),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the pipeline, such as silver.orders.")
    ] = None,
    strategy: Annotated[
        Strategy | None, typer.Option(help="Default: upsert with a key, append_only without one.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the unique key. Can be repeated.")
    ] = None,
) -> Answer:
    """Create a project that runs, or add a pipeline to one."""
    from tallymark import project

    root = folder or common_options(context).project
    exists = _is_project(root, or_inside_one=folder is None)
    keys = tuple(part.strip() for item in key or () for part in item.split(",") if part.strip())
    if _can_prompt(context):
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
        # A user who brings data does not need the sample pipeline.
        created += project.init_project(root, name, with_sample=from_file is None)
    if from_file is not None and pipeline is not None:
        created.append(project.init_pipeline(root, pipeline, from_file, strategy, keys))
    return output.init(root, created, pipeline)


def _is_project(root: Path, or_inside_one: bool) -> bool:
    from tallymark.config.load_project import find_project
    from tallymark.config.pipeline_folders import PROJECT_FILE

    if not or_inside_one:
        return (root / PROJECT_FILE).is_file()
    try:
        find_project(root)
    except ConfigError:
        return False
    return True


def _can_prompt(context: typer.Context) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not common_options(context).json


def _ask_file() -> Path | None:
    """Repeats the question until the file exists: a wrong path would only fail later."""
    while True:
        text = typer.prompt(
            "A data file to load (leave empty for none)", default="", show_default=False
        ).strip()
        if not text:
            return None
        if Path(text).is_file():
            return Path(text)
        typer.echo(f"  {text} does not exist")


def _ask_key() -> tuple[str, ...]:
    question = "Columns that identify a row, separated by commas (leave empty for none)"
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
            "--pipeline, --strategy and --key need --from",
            hint="add --from FILE with a sample of the data",
        )
    if from_file is not None and not pipeline:
        raise ConfigError("--from needs --pipeline", hint=f"add --pipeline {_suggested_name(from_file)}")
