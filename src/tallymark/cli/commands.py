"""The commands. Each asks the library and hands its answer to `output`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallymark import __version__
from tallymark.cli import failure, initialise, output, quarantine
from tallymark.cli.arguments import Options
from tallymark.cli.blocks import Answer
from tallymark.cli.opening import open_project, options_of
from tallymark.cli.parameters import (
    EVERYWHERE,
    AllowDeletes,
    FullRefresh,
    OnePipeline,
    OptionalPipeline,
    Pipelines,
    Since,
    Until,
    app_options,
    load_options,
)

app = typer.Typer(
    name="tallymark",
    help="Load files into lakehouse tables, exactly once.",
    epilog="Exit codes: 0 all good, 1 a load failed, 2 wrong use or configuration.",
    invoke_without_command=True,
    **app_options(),
)
app.add_typer(quarantine.app, name="quarantine")
app.command(name="init", epilog=EVERYWHERE)(initialise.init)


@app.callback()
def common(
    context: typer.Context,
    project: Annotated[Path, typer.Option(metavar="DIR", help="Folder with tallymark.yaml.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log and tracebacks on stderr.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> Answer | None:
    context.obj = Options(project, as_json, verbose)
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
    """Load what is new, exactly once. Or ask named transforms for rows again."""
    options = load_options(pipelines, allow_deletes, full_refresh, since, until)
    with open_project(context) as project:
        return output.run(project.run(*pipelines or (), **options))


@app.command(epilog=EVERYWHERE)
def plan(
    context: typer.Context,
    pipelines: Pipelines = None,
    sql: Annotated[bool, typer.Option("--sql", help="Show the query that decides.")] = False,
    samples: Annotated[int, typer.Option(min=0, metavar="N", help="Sample rows per table.")] = 10,
    allow_deletes: AllowDeletes = False,
    full_refresh: FullRefresh = False,
    since: Since = None,
    until: Until = None,
) -> Answer:
    """Say what the next load would do, row by row. Writes nothing."""
    options = load_options(pipelines, allow_deletes, full_refresh, since, until)
    with open_project(context) as project:
        return output.plan(project.plan(*pipelines or (), samples=samples, **options), with_sql=sql)


@app.command(epilog=EVERYWHERE)
def preview(
    context: typer.Context,
    pipeline: OnePipeline,
    rows: Annotated[int, typer.Option(min=0, metavar="N", help="How many rows to show.")] = 20,
    explain: Annotated[bool, typer.Option("--explain", help="Show Spark's plan of the query.")] = False,
) -> Answer:
    """Show what a pipeline's query or files give now: SQL, schema, first rows. Writes nothing."""
    with open_project(context) as project:
        return output.preview(project.preview(pipeline, rows), with_plan=explain)


@app.command(epilog=EVERYWHERE)
def status(context: typer.Context) -> Answer:
    """Show every pipeline: its files, its last commit, what needs repair."""
    with open_project(context) as project:
        return output.status(project.status())


@app.command(epilog=EVERYWHERE)
def history(
    context: typer.Context,
    pipeline: OptionalPipeline = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="How many batches.")] = 20,
) -> Answer:
    """Show the latest batches and what each of them did."""
    with open_project(context) as project:
        return output.history(project.history(pipeline, limit=limit))


@app.command(epilog=EVERYWHERE)
def requeue(
    context: typer.Context,
    pipeline: OnePipeline,
    file: Annotated[
        list[str] | None, typer.Option(help="Only this file; may be given several times.")
    ] = None,
) -> Answer:
    """Let the next run try failed files again."""
    with open_project(context) as project:
        return output.requeue(pipeline, project.requeue(pipeline, file or None))


@app.command(epilog=EVERYWHERE)
def recover(context: typer.Context, pipelines: Pipelines = None) -> Answer:
    """Settle what a dead worker left open, and rebuild lost records. Loads nothing."""
    with open_project(context) as project:
        return output.recover(project.recover(*pipelines or ()))


@app.command(epilog=EVERYWHERE)
def graph(
    context: typer.Context,
    pipelines: Pipelines = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid diagram.")] = False,
    columns: Annotated[bool, typer.Option("--columns", help="Which column is made of which.")] = False,
) -> Answer:
    """Show which pipeline reads which, in the order in which they run."""
    if mermaid and columns:
        raise typer.BadParameter("--mermaid draws pipelines, not --columns: choose one")
    with open_project(context) as project:
        if columns:
            return output.lineage(project.lineage(*pipelines or ()))
        return output.graph(project.graph(*pipelines or ()), as_mermaid=mermaid)


@app.command(epilog=EVERYWHERE)
def config(context: typer.Context, pipeline: OnePipeline) -> Answer:
    """Show the settings that hold for a pipeline, and where each came from."""
    with open_project(context) as project:
        return output.settings(pipeline, project.settings(pipeline))


@app.command(epilog=EVERYWHERE)
def validate(context: typer.Context) -> Answer:
    """Check the configuration. Starts no Spark."""
    from tallymark import project as front_door

    return output.validate(front_door.validate(options_of(context).project))


@app.command(epilog=EVERYWHERE)
def doctor(context: typer.Context) -> Answer:
    """Check Java, Spark, its JARs, the ledger and every destination."""
    with open_project(context) as project:
        return output.doctor(project.doctor())


@app.command(epilog=EVERYWHERE)
def prepare(context: typer.Context) -> Answer:
    """Fetch Spark's JARs and keep Java's classes in a file, so that later starts are faster."""
    with open_project(context) as project:
        return output.prepare(project.prepare())


@app.command(epilog=EVERYWHERE)
def schema(
    write: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write one file per schema.")] = None,
) -> Answer:
    """Print the JSON Schemas of the configuration files, for editors."""
    from tallymark import project as front_door
    from tallymark.cli.files import write_text
    from tallymark.config.schema import schema_text

    schemas = front_door.schemas()
    if write is None:
        return output.schema(schemas, ())
    written = [write_text(write / name, schema_text(content)) for name, content in schemas.items()]
    return output.schema(schemas, written)
