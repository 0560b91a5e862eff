"""The commands. Each calls the library and passes the report to `output`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallymark import __version__
from tallymark.cli import failure, initialise, output, progress
from tallymark.cli.arguments import (
    EVERYWHERE,
    AllowDeletes,
    CommonOptions,
    FullRefresh,
    OnePipeline,
    OptionalPipeline,
    Pipelines,
    Since,
    Until,
    app_options,
    common_options,
    load_options,
)
from tallymark.cli.screen import Answer
from tallymark.errors import ConfigError
from tallymark.model.private_files import open_private, private_folder
from tallymark.model.report import QuarantinedRow

if TYPE_CHECKING:
    from tallymark.project import Project


SHOWN_ROWS = 100
EXPORTED_ROWS = 1_000_000

app = typer.Typer(
    name="tallymark",
    help="Load files into lakehouse tables, exactly once.",
    epilog="Exit codes: 0 success, 1 a load failed, 2 wrong use or configuration.",
    invoke_without_command=True,
    **app_options(),
)
quarantine = typer.Typer(help="List bad rows, load them again or drop them.", **app_options())
app.add_typer(quarantine, name="quarantine")
app.command(name="init", epilog=EVERYWHERE)(initialise.init)


@contextmanager
def open_project(context: typer.Context) -> Iterator[Project]:
    """The project of a command. Its progress goes to stderr."""
    from tallymark.project import Project

    options = common_options(context)
    with progress.shown(options.verbose) as on_event, Project(options.project, on_event=on_event) as project:
        yield project


@app.callback()
def common(
    context: typer.Context,
    project: Annotated[Path, typer.Option(metavar="DIR", help="The folder with tallymark.yaml.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log and tracebacks on stderr.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> Answer | None:
    context.obj = CommonOptions(project, as_json, verbose)
    if context.invoked_subcommand is not None:
        return None
    return output.version(__version__) if version else failure.no_command(context.get_help())


@app.command(epilog=EVERYWHERE)
def run(
    context: typer.Context,
    pipelines: Pipelines = None,
    allow_deletes: AllowDeletes = False,
    full_refresh: FullRefresh = False,
    since: Since = None,
    until: Until = None,
) -> Answer:
    """Load new content exactly once, or query named transforms again."""
    options = load_options(pipelines, allow_deletes, full_refresh, since, until)
    with open_project(context) as project:
        return output.run(project.run(*pipelines or (), **options))


@app.command(epilog=EVERYWHERE)
def plan(
    context: typer.Context,
    pipelines: Pipelines = None,
    sql: Annotated[bool, typer.Option("--sql", help="Show the query that labels the rows.")] = False,
    samples: Annotated[int, typer.Option(min=0, metavar="N", help="Sample rows per table.")] = 10,
    allow_deletes: AllowDeletes = False,
    full_refresh: FullRefresh = False,
    since: Since = None,
    until: Until = None,
) -> Answer:
    """Show what the next load would do, row by row. Writes nothing."""
    options = load_options(pipelines, allow_deletes, full_refresh, since, until)
    with open_project(context) as project:
        return output.plan(project.plan(*pipelines or (), samples=samples, **options), with_sql=sql)


@app.command(epilog=EVERYWHERE)
def preview(
    context: typer.Context,
    pipeline: OnePipeline,
    rows: Annotated[int, typer.Option(min=0, metavar="N", help="Rows to show.")] = 20,
    explain: Annotated[bool, typer.Option("--explain", help="Show Spark's plan of the query.")] = False,
) -> Answer:
    """Show what a pipeline's query or files return now: SQL, schema, first rows. Writes nothing."""
    with open_project(context) as project:
        return output.preview(project.preview(pipeline, rows), with_plan=explain)


@app.command(epilog=EVERYWHERE)
def status(context: typer.Context) -> Answer:
    """Show every pipeline: its files, its last commit and what needs attention."""
    with open_project(context) as project:
        return output.status(project.status())


@app.command(epilog=EVERYWHERE)
def history(
    context: typer.Context,
    pipeline: OptionalPipeline = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Batches to show.")] = 20,
) -> Answer:
    """Show the latest batches and what each of them did."""
    with open_project(context) as project:
        return output.history(project.history(pipeline, limit=limit))


@app.command(epilog=EVERYWHERE)
def requeue(
    context: typer.Context,
    pipeline: OnePipeline,
    file: Annotated[list[str] | None, typer.Option(help="Only this file. Can be repeated.")] = None,
) -> Answer:
    """Let the next run retry failed files."""
    with open_project(context) as project:
        return output.requeue(pipeline, project.requeue(pipeline, file or None))


@app.command(epilog=EVERYWHERE)
def recover(context: typer.Context, pipelines: Pipelines = None) -> Answer:
    """Settle the batches that a dead worker left open and rebuild lost records. Loads nothing."""
    with open_project(context) as project:
        return output.recover(project.recover(*pipelines or ()))


@app.command(epilog=EVERYWHERE)
def graph(
    context: typer.Context,
    pipelines: Pipelines = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid diagram.")] = False,
    columns: Annotated[
        bool, typer.Option("--columns", help="Show which columns each column is computed from.")
    ] = False,
) -> Answer:
    """Show which pipelines read which, in the order in which they run."""
    if mermaid and columns:
        raise typer.BadParameter("--mermaid draws pipelines only: use it without --columns")
    with open_project(context) as project:
        if columns:
            return output.lineage(project.lineage(*pipelines or ()))
        return output.graph(project.graph(*pipelines or ()), as_mermaid=mermaid)


@app.command(epilog=EVERYWHERE)
def config(context: typer.Context, pipeline: OnePipeline) -> Answer:
    """Show the effective settings of a pipeline and where each one comes from."""
    with open_project(context) as project:
        return output.settings(pipeline, project.settings(pipeline))


@app.command(epilog=EVERYWHERE)
def validate(context: typer.Context) -> Answer:
    """Check the configuration. Does not start Spark."""
    from tallymark import project as front_door

    return output.validate(front_door.validate(common_options(context).project))


@app.command(epilog=EVERYWHERE)
def doctor(context: typer.Context) -> Answer:
    """Check Java, Spark, its JARs, the ledger and every destination."""
    with open_project(context) as project:
        return output.doctor(project.doctor())


@app.command(epilog=EVERYWHERE)
def prepare(context: typer.Context) -> Answer:
    """Download Spark's JARs and archive Java's classes, so that Spark starts faster."""
    with open_project(context) as project:
        return output.prepare(project.prepare())


@app.command(epilog=EVERYWHERE)
def schema(
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write each schema to a file in this folder.")
    ] = None,
) -> Answer:
    """Print the JSON Schemas of the configuration files, for editors."""
    from tallymark import project as front_door
    from tallymark.cli.commands import write_text
    from tallymark.config.keys import schema_text

    schemas = front_door.schemas()
    if write is None:
        return output.schema(schemas, ())
    written = [write_text(write / name, schema_text(content)) for name, content in schemas.items()]
    return output.schema(schemas, written)


OptionalBatch = Annotated[
    str | None, typer.Argument(metavar="BATCH", help="A batch from `quarantine list`. Default: all.")
]


@quarantine.command("list", epilog=EVERYWHERE)
def list_quarantine(context: typer.Context, pipeline: OptionalPipeline = None) -> Answer:
    """Show which batches have bad rows, and why."""
    with open_project(context) as project:
        return output.quarantine_list(project.quarantine_list(pipeline))


@quarantine.command("show", epilog=EVERYWHERE)
def show_quarantine(
    context: typer.Context,
    pipeline: OnePipeline,
    batch: OptionalBatch = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Default: 100, or 1,000,000 with --export.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the rows to a .csv or .ndjson file.")
    ] = None,
) -> Answer:
    """Show bad rows: file, row, column, reason, content."""
    from tallymark.cli.commands import check_export, export_rows

    if export:
        check_export(export)
    most = limit or (EXPORTED_ROWS if export else SHOWN_ROWS)
    with open_project(context) as project:
        rows = project.quarantine_show(pipeline, batch, limit=most)
    return output.quarantine_show(rows, pipeline, most, export_rows(export, rows) if export else None)


@quarantine.command("replay", epilog=EVERYWHERE)
def replay_quarantine(context: typer.Context, pipeline: OnePipeline, batch: OptionalBatch = None) -> Answer:
    """Load bad rows through the pipeline again, exactly once."""
    with open_project(context) as project:
        return output.replay(project.quarantine_replay(pipeline, batch))


@quarantine.command("drop", epilog=EVERYWHERE)
def drop_quarantine(
    context: typer.Context,
    pipeline: OnePipeline,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="A batch from `quarantine list`.")],
    row_id: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only this row. Can be repeated.")
    ] = None,
) -> Answer:
    """Delete bad rows for good."""
    with open_project(context) as project:
        return output.dropped(pipeline, batch, project.quarantine_drop(pipeline, batch, row_id or None))


EXPORT_ENDINGS = (".csv", ".ndjson", ".jsonl")


def write_text(path: Path, text: str, *, private: bool = False) -> Path:
    try:
        if private:
            private_folder(path.parent)
            with open_private(path, "w") as file:
                file.write(text)
        else:
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
    text = _as_csv(rows) if path.suffix == ".csv" else _as_ndjson(rows)
    return write_text(path, text, private=True)


def _as_csv(rows: Sequence[QuarantinedRow]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(QuarantinedRow)])
    writer.writeheader()
    writer.writerows({**asdict(row), "quarantined_at": row.quarantined_at.isoformat()} for row in rows)
    return buffer.getvalue()


def _as_ndjson(rows: Sequence[QuarantinedRow]) -> str:
    return "".join(json.dumps(asdict(row), default=str) + "\n" for row in rows)
