"""What a source offers now: files that are listed and hashed, or the one result of a transform.

The result of a transform is offered when its code or its inputs are not those that its table was last made
from. Nobody starts Spark for that, where the inputs can tell their version without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallymark.flow.job import Job, Query
from tallymark.flow.transform.archive import contents_read
from tallymark.flow.transform.backfill import window_of
from tallymark.flow.transform.pins import RESULT, Pin
from tallymark.flow.transform.views import view_pin
from tallymark.model.batch import FileStat, SourceFile
from tallymark.model.report import Step
from tallymark.sources.discover import Found, discover


def look(job: Job) -> Found:
    query = job.task.query
    return look_for_files(job) if query is None else look_for_result(job, query)


def look_for_files(job: Job, on_listed: Callable[[Sequence[str]], None] = lambda paths: None) -> Found:
    """What waits is asked before the listing: what another worker registers meanwhile has not vanished, it
    came later."""
    job.tell(Step.DISCOVER, "looking for files")
    waiting = job.ledger.waiting_files(job.task.pipeline)

    def known(paths: Sequence[str]) -> set[FileStat]:
        on_listed(paths)
        return job.ledger.known_stats(job.task.pipeline, job.table_key, paths)

    return discover(
        job.task.files,
        job.task.root,
        known,
        lambda: job.spark,
        now=job.clock(),
        watched=[entry.file.path for entry in waiting],
        on_progress=_hashing(job),
    )


def look_for_result(job: Job, query: Query) -> Found:
    job.tell(Step.DISCOVER, "looking at the inputs")
    waited = {entry.file.path for entry in job.ledger.waiting_files(job.task.pipeline)}
    last = job.ledger.last_result(job.table_key, starting=RESULT)
    before = Pin.from_json(last.inputs) if last is not None and last.inputs else None
    pin, waiting = view_pin(job, query) if query.is_view else pin_now(job, query, before)
    if pin is None:
        return Found((), len(query.refs) + len(query.zones), frozenset(), waiting, ())
    if not pin.is_asked_again and before is not None and last is not None and pin.identity == before.identity:
        return Found((), 1, frozenset(waited - {last.path}), waiting, ())
    content = _content(job, pin, last)
    known = job.ledger.known_files(job.task.pipeline, [content.path], table_key=job.table_key)
    new = () if content.path in known else (content,)
    return Found(new, 1, frozenset(waited - {content.path}), waiting, ())


def pin_now(job: Job, query: Query, before: Pin | None) -> tuple[Pin | None, tuple[tuple[str, str], ...]]:
    """The inputs as they are, or None when one is not there yet; and what is waited for, with the reason.
    Files that are still being written are left for the next run."""
    waiting: list[tuple[str, str]] = []
    tables: dict[str, str] = {}
    for name in query.refs:
        version = job.open_input(name).input_version()
        if version is None:
            waiting.append((name, "its table is not there yet"))
        else:
            tables[name] = version
    zones = {zone: _files_of(job, query, zone, before, waiting) for zone in query.zones}
    if len(tables) < len(query.refs) or not all(zones.values()):
        return None, tuple(waiting)
    window = window_of(job.task.settings, job.task.rerun)
    return Pin(query.code, tables, zones, job.task.rerun.full_refresh, window), tuple(waiting)


def _content(job: Job, pin: Pin, last: SourceFile | None) -> SourceFile:
    asked_ns = int(job.clock().timestamp() * 1e9)
    if pin.refresh:  # each time that it is asked for
        return pin.content(asked_ns, after=str(asked_ns))
    if pin.window is not None:  # once for each content of the table
        return pin.content(asked_ns, after="" if last is None else last.content_hash)
    content = pin.content(asked_ns)
    if last is not None and job.ledger.batch_of_hashes(job.table_key, [content.content_hash]):
        return pin.content(asked_ns, after=last.content_hash)
    return content


def _files_of(
    job: Job, query: Query, zone: str, before: Pin | None, waiting: list[tuple[str, str]]
) -> tuple[SourceFile, ...]:
    known = {file.path: file for file in before.zones.get(zone, ())} if before is not None else {}
    on_record = {file.stat for file in known.values()}
    found = discover(
        query.zones[zone],
        job.task.root,
        lambda paths: on_record,
        lambda: job.spark,
        now=job.clock(),
        watched=known.keys(),
    )
    for unreadable in found.unreadable:
        raise unreadable
    waiting += found.waiting
    kept = {path: file for path, file in known.items() if path not in found.vanished}
    files = {**kept, **{file.path: file for file in found.files}}
    if job.task.archive:
        read = contents_read(job)
        files = {path: file for path, file in files.items() if file.content_hash not in read}
    if not files:
        waiting.append((f"landing zone {zone}", "it holds no new files yet"))
    return tuple(files[path] for path in sorted(files))


def _hashing(job: Job) -> Callable[[int, int], None]:
    return lambda done, total: job.tell(Step.DISCOVER, "hashing files", done, total)
