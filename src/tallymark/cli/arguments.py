"""The arguments of the commands: those that every command takes, wherever they stand on the command line, and
those that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

if TYPE_CHECKING:
    from tallymark.flow.job import LoadOptions

FLAGS = ("--json", "--verbose")
GROUPS = ("quarantine",)  # commands with a second word
EVERYWHERE = "Before or after the command: --project DIR, --json, --verbose."


@dataclass(frozen=True)
class CommonOptions:
    project: Path = Path()
    json: bool = False
    verbose: bool = False


def common_options(context: typer.Context) -> CommonOptions:
    options = context.find_root().obj
    assert isinstance(options, CommonOptions)  # noqa: S101 - set by the callback that precedes every command
    return options


def hoist(argv: Sequence[str]) -> list[str]:
    """Move the common options in front of the command, where they are declared, so that
    `tallymark run --json` and `tallymark --json run` are the same."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in FLAGS or word.startswith("--project="):
            front.append(word)
        elif word == "--project":
            value = next(words, None)
            if value is None:  # returned alone, so that it does not take the command's name as its value
                return [*front, word]
            front += [word, value]
        else:
            rest.append(word)
    return front + rest


def has_flag(flag: str, hoisted: Sequence[str]) -> bool:
    return flag in hoisted[: hoisted.index("--")] if "--" in hoisted else flag in hoisted


def command_name(hoisted: Sequence[str]) -> str | None:
    """Works without parsing, because the JSON document names the command even if parsing fails."""
    words = iter(hoisted)
    names: list[str] = []
    for word in words:
        if word == "--project":
            next(words, None)
        elif not word.startswith("-"):
            names.append(word)
    if not names:
        return None
    return " ".join(names[: 2 if names[0] in GROUPS else 1])


def project_folder(hoisted: Sequence[str]) -> Path:
    """Works without parsing, because the log of a crash goes to the project's folder."""
    for word, following in zip(hoisted, [*hoisted[1:], "."], strict=True):
        if word == "--project":
            return Path(following)
        if word.startswith("--project="):
            return Path(word.removeprefix("--project="))
    return Path()


class AppOptions(TypedDict):
    rich_markup_mode: None
    pretty_exceptions_enable: bool
    context_settings: dict[str, list[str]]


def app_options() -> AppOptions:
    """Plain help: it takes half the time to print, and it stays plain in a pipe."""
    return {
        "rich_markup_mode": None,
        "pretty_exceptions_enable": False,
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }


def pipeline_names(context: typer.Context) -> list[str]:
    """Shell completion: the folders that hold a pipeline. No configuration is read."""
    root = Path(context.find_root().params.get("project") or ".") / "pipelines"
    files = ("config.yaml", "pipeline.sql", "pipeline.py")
    folders = {found.parent.relative_to(root) for file in files for found in root.glob(f"**/{file}")}
    return sorted(".".join(folder.parts) for folder in folders)


Pipelines = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PIPELINE",
        help="Names or patterns such as 'silver.*'. +NAME adds the pipelines that NAME reads, NAME+ those "
        "that read it. Default: all.",
        autocompletion=pipeline_names,
    ),
]
OnePipeline = Annotated[str, typer.Argument(metavar="PIPELINE", autocompletion=pipeline_names)]
OptionalPipeline = Annotated[
    str | None,
    typer.Argument(metavar="PIPELINE", help="Default: all.", autocompletion=pipeline_names),
]
AllowDeletes = Annotated[
    bool, typer.Option("--allow-deletes", help="Let this load delete more rows than the guard allows.")
]
FullRefresh = Annotated[
    bool,
    typer.Option("--full-refresh", help="Query transforms for all rows and replace their tables."),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="VALUE", help="Query transforms for a window of rows again: its start, inclusive."),
]
Until = Annotated[str | None, typer.Option(metavar="VALUE", help="The end of the window, exclusive.")]


def load_options(
    pipelines: list[str] | None, allow_deletes: bool, full_refresh: bool, since: str | None, until: str | None
) -> LoadOptions:
    if not pipelines and (full_refresh or since or until):
        raise typer.BadParameter(
            "--full-refresh, --since and --until need the names of the pipelines, such as gold.revenue"
        )
    return {
        "allow_deletes": allow_deletes,
        "full_refresh": full_refresh,
        "since": since,
        "until": until,
    }
