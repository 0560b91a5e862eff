"""Step 1: what a source offers now. Files are listed and hashed; a transform offers one result of its query.

A transform offers a result when its code or its inputs differ from those that its table was last made from.
That needs no Spark where the inputs can tell their version without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tallymark.errors import UnreadableFile
from tallymark.flow.job import Job, Query
from tallymark.flow.transform.archive import FilesRead
from tallymark.flow.transform.backfill import window_of
from tallymark.flow.transform.views import view_pin
from tallymark.ledger.contents import Registration
from tallymark.ledger.repeats import Repeats
from tallymark.model.batch import Content, FileStat, Pin, QueryResult, SourceFile
from tallymark.model.report import DeferredInput, Discovery, RepeatedFile, Step
from tallymark.sources.new_files import Found, still_there
from tallymark.sources.new_files import discover as find_files


@dataclass(frozen=True)
class Offer:
    contents: tuple[SourceFile | QueryResult, ...]  # new or changed, in the configured order
    listed: int
    vanished: frozenset[str]  # names of waiting contents that are no longer offered
    deferred: tuple[tuple[str, str], ...] = ()  # (name, why it is left for the next run)
    unreadable: tuple[UnreadableFile, ...] = ()
    repeats: Repeats | None = None  # None: contents are taken as they are


@dataclass(frozen=True)
class Discovered:
    report: Discovery
    unreadable: tuple[UnreadableFile, ...]
    new: tuple[Content, ...] = ()
    warnings: tuple[str, ...] = ()


def discover(job: Job) -> Discovered:
    """Registers what the source offers."""
    return register(job, offer_of(job))


def register(job: Job, offer: Offer) -> Discovered:
    registered = job.ledger.register(job.task.pipeline, job.table_key, offer.contents, offer.repeats)
    job.ledger.forget_vanished(job.task.pipeline, offer.vanished)
    report = Discovery(
        offer.listed,
        len(registered.new),
        tuple(RepeatedFile(*pair) for pair in registered.duplicates),
        tuple(DeferredInput(*pair) for pair in offer.deferred),
        tuple(RepeatedFile(*pair) for pair in registered.returned),
    )
    return Discovered(report, offer.unreadable, registered.new, tuple(_told(job, registered)))


def _told(job: Job, registered: Registration) -> Iterator[str]:
    """A state that changes without new contents must not go unnoticed, and one that stays neither."""
    for pairs, what in (
        (registered.returned, "are applied again: they come after other contents"),
        (
            registered.skipped,
            f"are not loaded again ({job.task.strategy}), though other contents came between",
        ),
    ):
        if pairs:
            name, before = pairs[0]
            more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
            yield (
                f"{name}{more}: contents that were delivered before, as {before}, {what}; "
                "see repeated_content"
            )


def offer_of(job: Job) -> Offer:
    query = job.task.query
    if query is not None:
        return _offered_result(job, query)
    found = offered_files(job)
    repeats = Repeats(
        job.task.repeated_content,
        job.task.order,
        job.task.is_grouped,
        unread=tuple(error.path for error in found.unreadable),
        renamed=_renamed(job, found.files),
    )
    return Offer(found.files, found.listed, found.vanished, found.waiting, found.unreadable, repeats)


def _renamed(job: Job, files: Sequence[SourceFile]) -> frozenset[str]:
    """A file that has its bytes and modification time under a new name, and is no longer there under the old
    one, is the same delivery."""
    known = job.ledger.renamed_from(job.task.pipeline, job.table_key, files) if files else {}
    old_paths = {path for paths in known.values() for path in paths}
    there = still_there(old_paths, lambda: job.spark) if old_paths else set()
    return frozenset(path for path, paths in known.items() if there.isdisjoint(paths))


def offered_files(job: Job, on_listed: Callable[[Sequence[str]], None] = lambda paths: None) -> Found:
    """What waits is read before the listing: what another worker registers in the meantime has not vanished,
    it arrived later."""
    job.tell(Step.DISCOVER, "looking for files")
    waiting = job.ledger.waiting_contents(job.task.pipeline)

    def known(paths: Sequence[str]) -> set[FileStat]:
        on_listed(paths)
        return job.ledger.known_stats(job.task.pipeline, job.table_key, paths)

    return find_files(
        job.task.files,
        job.task.root,
        known,
        lambda: job.spark,
        now=job.now(),
        watched=[entry.content.name for entry in waiting],
        on_progress=lambda done, total: job.tell(Step.DISCOVER, "hashing files", done, total),
    )


def _offered_result(job: Job, query: Query) -> Offer:
    job.tell(Step.DISCOVER, "checking the inputs")
    waited = {entry.content.name for entry in job.ledger.waiting_contents(job.task.pipeline)}
    last = job.ledger.last_result(job.table_key)
    before = None if last is None else last.pin
    pin, deferred = view_pin(job, query) if query.is_view else pin_now(job, query, before)
    if pin is None:
        return Offer((), len(query.refs) + len(query.zones), frozenset(), deferred)
    if last is not None and not pin.is_rerun and pin.identity == last.pin.identity:
        return Offer((), 1, frozenset(waited - {last.name}), deferred)
    result = _result(job, pin, last)
    is_known = job.ledger.is_offered(job.task.pipeline, job.table_key, result)
    return Offer(() if is_known else (result,), 1, frozenset(waited - {result.name}), deferred)


def pin_now(job: Job, query: Query, before: Pin | None) -> tuple[Pin | None, tuple[tuple[str, str], ...]]:
    """The inputs in their current versions, or None if one does not exist yet; and what is deferred, with the
    reason. Files that are still being written are left for the next run."""
    deferred: list[tuple[str, str]] = []
    tables: dict[str, str] = {}
    for name in query.refs:
        version = job.connections.input_table(name).input_version()
        if version is None:
            deferred.append((name, "its table does not exist yet"))
        else:
            tables[name] = version
    zones = {zone: _files_in(job, query, zone, before, deferred) for zone in query.zones}
    if len(tables) < len(query.refs) or not all(zones.values()):
        return None, tuple(deferred)
    window = window_of(job.task.settings, job.task.rerun)
    return Pin(query.code, tables, zones, job.task.rerun.full_refresh, window), tuple(deferred)


def _result(job: Job, pin: Pin, last: QueryResult | None) -> QueryResult:
    requested_ns = int(job.now().timestamp() * 1e9)
    if pin.refresh:  # a new content each time that it is requested
        return QueryResult.of(pin, requested_ns, after=str(requested_ns))
    if pin.window is not None:  # once for each content of the table
        return QueryResult.of(pin, requested_ns, after="" if last is None else last.content_hash)
    result = QueryResult.of(pin, requested_ns)
    if last is not None and job.ledger.batch_of_hashes(job.table_key, [result.content_hash]):
        return QueryResult.of(pin, requested_ns, after=last.content_hash)
    return result


def _files_in(
    job: Job, query: Query, zone: str, before: Pin | None, deferred: list[tuple[str, str]]
) -> tuple[SourceFile, ...]:
    known = {file.path: file for file in before.zones.get(zone, ())} if before is not None else {}
    on_record = {file.stat for file in known.values()}
    found = find_files(
        query.zones[zone],
        job.task.root,
        lambda paths: on_record,
        lambda: job.spark,
        now=job.now(),
        watched=known.keys(),
    )
    for unreadable in found.unreadable:
        raise unreadable
    deferred += found.waiting
    kept = {path: file for path, file in known.items() if path not in found.vanished}
    files = {**kept, **{file.path: file for file in found.files}}
    if job.task.archive:
        read, policy = FilesRead.of(job), job.task.repeated_content
        files = {path: file for path, file in files.items() if read.is_due(file, policy)}
    if not files:
        deferred.append((f"landing zone {zone}", "it holds no new files yet"))
    return tuple(files[path] for path in sorted(files))
