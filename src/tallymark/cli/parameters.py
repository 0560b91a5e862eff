"""Parameters that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

if TYPE_CHECKING:
    from tallymark.flow.jobs import LoadOptions

EVERYWHERE = "Before or after the command: --project DIR, --json, --verbose."


class AppOptions(TypedDict):
    rich_markup_mode: None
    pretty_exceptions_enable: bool
    context_settings: dict[str, list[str]]


def app_options() -> AppOptions:
    """Plain help: it needs half the time, and stays plain when piped."""
    return {
        "rich_markup_mode": None,
        "pretty_exceptions_enable": False,
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }


def pipeline_names(context: typer.Context) -> list[str]:
    """For shell completion: the folders that hold a pipeline, without reading any configuration."""
    root = Path(context.find_root().params.get("project") or ".") / "pipelines"
    files = ("config.yaml", "pipeline.sql", "pipeline.py")
    folders = {found.parent.relative_to(root) for file in files for found in root.glob(f"**/{file}")}
    return sorted(".".join(folder.parts) for folder in folders)


Pipelines = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PIPELINE",
        help="Names, or patterns such as 'silver.*'; +NAME with what it reads, NAME+ with what reads it. "
        "Default: all.",
        autocompletion=pipeline_names,
    ),
]
OnePipeline = Annotated[str, typer.Argument(metavar="PIPELINE", autocompletion=pipeline_names)]
OptionalPipeline = Annotated[
    str | None,
    typer.Argument(metavar="PIPELINE", help="Default: all.", autocompletion=pipeline_names),
]
AllowDeletes = Annotated[
    bool, typer.Option("--allow-deletes", help="Let one load delete more than the guard permits.")
]
FullRefresh = Annotated[
    bool,
    typer.Option("--full-refresh", help="Ask transforms for all rows, and replace their tables by them."),
]
Since = Annotated[
    str | None, typer.Option(metavar="VALUE", help="Ask transforms for the rows of a window: from here on.")
]
Until = Annotated[str | None, typer.Option(metavar="VALUE", help="The window's end, itself not in it.")]


def load_options(
    pipelines: list[str] | None, allow_deletes: bool, full_refresh: bool, since: str | None, until: str | None
) -> LoadOptions:
    if not pipelines and (full_refresh or since or until):
        raise typer.BadParameter("name the pipelines that are to be asked again, such as gold.revenue")
    return {
        "allow_deletes": allow_deletes,
        "full_refresh": full_refresh,
        "since": since,
        "until": until,
    }
