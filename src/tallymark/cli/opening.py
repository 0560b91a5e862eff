"""The project of a command, with its progress on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from tallymark.cli import progress
from tallymark.cli.arguments import Options

if TYPE_CHECKING:
    from tallymark.project import Project


@contextmanager
def open_project(context: typer.Context) -> Iterator[Project]:
    from tallymark.project import Project

    options = options_of(context)
    with progress.shown(options.verbose) as on_event, Project(options.project, on_event=on_event) as project:
        yield project


def options_of(context: typer.Context) -> Options:
    options = context.find_root().obj
    assert isinstance(options, Options)  # noqa: S101 - set by the callback that precedes every command
    return options
