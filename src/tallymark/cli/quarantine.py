"""`tallymark quarantine`: rows that broke a rule and were kept aside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallymark.cli import output
from tallymark.cli.blocks import Answer
from tallymark.cli.opening import open_project
from tallymark.cli.parameters import EVERYWHERE, OnePipeline, OptionalPipeline, app_options

SHOWN_ROWS = 100
EXPORTED_ROWS = 1_000_000

app = typer.Typer(help="Look at bad rows, load them again, or drop them.", **app_options())

OptionalBatch = Annotated[
    str | None, typer.Argument(metavar="BATCH", help="A batch of `quarantine list`; default: all.")
]


@app.command("list", epilog=EVERYWHERE)
def list_batches(context: typer.Context, pipeline: OptionalPipeline = None) -> Answer:
    """Show which batches left bad rows, and why."""
    with open_project(context) as project:
        return output.quarantine_list(project.quarantine_list(pipeline))


@app.command(epilog=EVERYWHERE)
def show(
    context: typer.Context,
    pipeline: OnePipeline,
    batch: OptionalBatch = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Default: 100; all to export.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows to a .csv or .ndjson file.")
    ] = None,
) -> Answer:
    """Show bad rows: file, row, column, reason, content."""
    from tallymark.cli.files import check_export, export_rows

    if export:
        check_export(export)
    most = limit or (EXPORTED_ROWS if export else SHOWN_ROWS)
    with open_project(context) as project:
        rows = project.quarantine_show(pipeline, batch, limit=most)
    return output.quarantine_show(rows, pipeline, most, export_rows(export, rows) if export else None)


@app.command(epilog=EVERYWHERE)
def replay(context: typer.Context, pipeline: OnePipeline, batch: OptionalBatch = None) -> Answer:
    """Send bad rows through the pipeline again, once."""
    with open_project(context) as project:
        return output.replay(project.quarantine_replay(pipeline, batch))


@app.command(epilog=EVERYWHERE)
def drop(
    context: typer.Context,
    pipeline: OnePipeline,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="A batch of `quarantine list`.")],
    row_id: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only this row; may be given several times."),
    ] = None,
) -> Answer:
    """Forget bad rows for good."""
    with open_project(context) as project:
        return output.dropped(pipeline, batch, project.quarantine_drop(pipeline, batch, row_id or None))
