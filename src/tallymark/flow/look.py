"""What a source offers now: files that are listed and hashed, or the one result of a transform.

The result of a transform is offered when its code or its inputs are not those that its table was last made
from. Nobody starts Spark for that, where the inputs can tell their version without it.
"""

from __future__ import annotations

from collections.abc import Callable

from tallymark.flow.job import Job, Query
from tallymark.flow.pins import Pin
from tallymark.model.batch import FileState, SourceFile
from tallymark.model.report import Step
from tallymark.sources.discover import Found, discover


def look(job: Job, known: dict[str, SourceFile]) -> Found:
    query = job.task.query
    return look_for_files(job, known) if query is None else look_for_result(job, query, known)


def look_for_files(job: Job, known: dict[str, SourceFile]) -> Found:
    """Files that failed are hashed again: one that was repaired, or rewritten within the clock's grain, may
    have kept its size and time."""
    job.tell(Step.DISCOVER, "looking for files")
    waiting = job.ledger.waiting_files(job.task.pipeline, table_key=job.table_key)
    failed = {entry.file.path for entry in waiting if entry.state is FileState.FAILED}
    return discover(
        job.task.files,
        job.task.root,
        {path: file for path, file in known.items() if path not in failed},
        lambda: job.spark,
        now=job.clock(),
        on_progress=_hashing(job),
    )


def look_for_result(job: Job, query: Query, known: dict[str, SourceFile]) -> Found:
    job.tell(Step.DISCOVER, "looking at the inputs")
    last = job.ledger.last_content(job.table_key)
    before = Pin.from_json(last.inputs) if last is not None and last.inputs else None
    waiting: list[tuple[str, str]] = []
    tables: dict[str, str] = {}
    for name in query.refs:
        destination, table = job.open_input(name)
        version = destination.input_version(table)
        if version is None:
            waiting.append((name, "its table is not there yet"))
        else:
            tables[name] = version
    zones = {zone: _files_of(job, query, zone, before, waiting) for zone in query.zones}
    if waiting:
        return Found((), len(query.refs) + len(query.zones), frozenset(known), tuple(waiting), ())
    pin = Pin(query.code, tables, zones)
    if before is not None and last is not None and pin.identity == before.identity:
        return Found((), 1, frozenset({last.path}), (), ())
    content = _content(job, pin, last)
    new = () if content.path in known else (content,)
    return Found(new, 1, frozenset({content.path}), (), ())


def _content(job: Job, pin: Pin, last: SourceFile | None) -> SourceFile:
    asked_ns = int(job.clock().timestamp() * 1e9)
    content = pin.content(asked_ns)
    if last is not None and job.ledger.batch_of_hashes(job.table_key, [content.content_hash]):
        return pin.content(asked_ns, after=last.content_hash)
    return content


def _files_of(
    job: Job, query: Query, zone: str, before: Pin | None, waiting: list[tuple[str, str]]
) -> tuple[SourceFile, ...]:
    known = {file.path: file for file in before.zones.get(zone, ())} if before is not None else {}
    found = discover(query.zones[zone], job.task.root, known, lambda: job.spark, now=job.clock())
    for unreadable in found.unreadable:
        raise unreadable
    waiting += found.waiting
    if not found.listed:
        waiting.append((f"landing zone {zone}", "it holds no files yet"))
    kept = [known[path] for path in found.listed_paths if path in known]
    fresh = {file.path: file for file in found.files}
    return tuple(sorted({**{file.path: file for file in kept}, **fresh}.values(), key=lambda file: file.path))


def _hashing(job: Job) -> Callable[[int, int], None]:
    return lambda done, total: job.tell(Step.DISCOVER, "hashing files", done, total)
