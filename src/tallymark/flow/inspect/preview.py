"""`preview`: the rows that the source of a pipeline has now, before anything is checked or merged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from pyspark.sql import DataFrame

from tallymark.errors import SourceError
from tallymark.flow.discover import offered_files, pin_now
from tallymark.flow.job import Job, Query
from tallymark.flow.load import read_batch
from tallymark.flow.transform.query import transformed
from tallymark.model.batch import Batch, Files, Pin, SourceFile
from tallymark.model.report import Preview, PreviewColumn, PreviewInput
from tallymark.model.types import quoted
from tallymark.sources.new_files import order_files
from tallymark.spark.sessions import plan_text

_FILES_SHOWN = 20


def preview_pipeline(job: Job, rows: int) -> Preview:
    """A transform runs on its inputs as they are now. Waiting files are read, or else loaded ones."""
    query = job.task.query
    with ExitStack() as inputs:
        if query is None:
            files = _some_files(job)
            source = read_batch(job, _batch(job, files), inputs)
            frame = source.frame.selectExpr(*(quoted(c.name) for c in source.columns))
            return _preview(job, frame, [(file.path, file.content_hash[:12]) for file in files], rows)
        pin = _pin(job, query)
        result = transformed(job, query, pin, job.now(), inputs)
        return _preview(job, result.frame, _versions(pin), rows, result.sql)


def _preview(
    job: Job, frame: DataFrame, inputs: Sequence[tuple[str, str]], rows: int, query: str = ""
) -> Preview:
    first = tuple(row.asDict(recursive=True) for row in frame.limit(rows).collect()) if rows else ()
    return Preview(
        pipeline=job.task.pipeline,
        query=query,
        inputs=tuple(PreviewInput(name, version) for name, version in inputs),
        schema=tuple(
            PreviewColumn(field.name, field.dataType.simpleString()) for field in frame.schema.fields
        ),
        rows=first,
        spark_plan=plan_text(frame),
    )


def _some_files(job: Job) -> list[SourceFile]:
    loaded: list[SourceFile] = []

    def keep_the_first(paths: Sequence[str]) -> None:
        known = job.ledger.known_files(job.task.pipeline, paths, table_key=job.table_key)
        loaded[:] = order_files([*loaded, *known.values()], job.task.order)[:_FILES_SHOWN]

    found = offered_files(job, keep_the_first)
    for unreadable in found.unreadable:
        raise unreadable
    files = order_files(found.files or loaded, job.task.order)[:_FILES_SHOWN]
    if not files:
        raise SourceError(
            f"{job.task.pipeline}: there are no files to preview",
            hint="put some where `source.files` points to",
        )
    return files


def _pin(job: Job, query: Query) -> Pin:
    pin, waiting = pin_now(job, query, None)
    if pin is None:
        name, why = waiting[0]
        raise SourceError(
            f"{query.transform.file}: {name}: {why}", hint="run what it reads first: `tallymark run +NAME`"
        )
    return pin


def _versions(pin: Pin) -> list[tuple[str, str]]:
    tables = [(f"ref {name}", version) for name, version in pin.tables.items()]
    return tables + [(f"landing_zone {zone}", f"{len(files)} files") for zone, files in pin.zones.items()]


def _batch(job: Job, files: Sequence[SourceFile]) -> Batch:
    return Batch(
        id="preview",
        pipeline=job.task.pipeline,
        table_key=job.table_key,
        contents=Files(tuple(files)),
        sequence=0,
        as_of=job.now(),
    )
