"""Records of contents: one for each table, name and content. Most are files, whose name is their path.

A record's `state` says what became of its content in the table. Its `gone_at` says that the source no longer
offers the content under this name. Of all records of a content, at most one *holds* it
(`schema.HOLDS_CONTENT`): it will load, loads or has loaded it; the others are DUPLICATE. A holder that goes
before it was loaded hands the content to a duplicate that is still there, so that nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, assert_never

import sqlalchemy as sa

from tallymark.ledger.database import Row, Tx, chunks
from tallymark.ledger.repeats import JudgedFiles, Repeats, judge
from tallymark.ledger.schema import HOLDS_CONTENT, OFFERED, ContentKind, contents
from tallymark.model.batch import (
    BatchContents,
    Content,
    Files,
    FileState,
    FrameRows,
    Pin,
    QuarantinedRows,
    QueryResult,
    SourceFile,
    Window,
)

WAITING = (FileState.PENDING, FileState.FAILED)
_HERE = contents.c.gone_at.is_(None)
COLUMNS = (  # what `content_of` reads
    contents.c.kind,
    contents.c.path,
    contents.c.size,
    contents.c.modified_ns,
    contents.c.content_hash,
    contents.c.details,
    contents.c.returned,
    contents.c.bytes_hash,
)
_RETIRED = (contents.c.id, contents.c.table_key, contents.c.content_hash, contents.c.state)
_FRESH = {"attempts": 0, "error": ""}
_REFRESH = (
    contents.update()
    .where(contents.c.id == sa.bindparam("row_id"))
    .values(
        size=sa.bindparam("now_size"),
        modified_ns=sa.bindparam("now_modified_ns"),
        state=sa.bindparam("now_state"),
        duplicate_of=sa.bindparam("now_duplicate_of"),
        gone_at=None,
    )
)


@dataclass(frozen=True)
class Registration:
    new: tuple[Content, ...]
    duplicates: tuple[tuple[str, str], ...]  # (name, name of the record that it repeats)
    returned: tuple[tuple[str, str], ...] = ()  # of `new`: states that return, and what held them before
    skipped: tuple[tuple[str, str], ...] = ()  # repeats of what is no longer the latest, and what they repeat


@dataclass(frozen=True)
class WaitingContent:
    content: SourceFile | QueryResult
    state: FileState  # PENDING or FAILED
    attempts: int
    error: str

    def is_stuck(self, max_attempts: int) -> bool:
        """Whether it waits for `requeue`: it is out of attempts, or was refused before any."""
        return self.state is FileState.FAILED and (self.attempts >= max_attempts or self.attempts == 0)


@dataclass(frozen=True)
class _Record:
    """A row of `contents`, or one that is about to be written (without id)."""

    id: int | None
    state: FileState
    duplicate_of: str | None
    gone_at: datetime | None
    content: Content


@dataclass(frozen=True)
class _Arrivals:
    """What has to be written for the given contents, and what is reported about them."""

    new: list[Content] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    inserts: list[dict[str, object]] = field(default_factory=list)
    updates: list[dict[str, object]] = field(default_factory=list)


# How contents are stored: the only place that knows


def values_of(content: Content) -> dict[str, object]:
    """The columns that identify and describe a content; the inverse of `content_of`."""
    size = modified_ns = returned = 0
    bytes_hash: str | None = None
    details: dict[str, object] | None = None
    match content:
        case SourceFile():
            kind, size, modified_ns = ContentKind.FILES, content.size, content.modified_ns
            returned, bytes_hash = content.returned, content.content_hash if content.returned else None
        case QueryResult(pin=pin):
            kind, modified_ns = (
                (ContentKind.QUERY if content.is_whole else ContentKind.WINDOW),
                content.requested_ns,
            )
            details = _pin_details(pin)
        case FrameRows():
            kind, details = ContentKind.FRAME, {"id": content.id}
        case QuarantinedRows():
            kind, size, details = ContentKind.REPLAY, content.rows, {"batch_id": content.batch_id}
        case _:
            assert_never(content)
    return {
        "kind": kind,
        "path": content.name,
        "size": size,
        "modified_ns": modified_ns,
        "content_hash": content.identity,
        "details": None if details is None else json.dumps(details, sort_keys=True),
        "returned": returned,
        "bytes_hash": bytes_hash,
    }


def content_of(row: Sequence[Any]) -> Content:
    """Of a row that begins with `COLUMNS`."""
    kind, path, size, modified_ns, content_hash, details, returned, bytes_hash = row[:8]
    if kind == ContentKind.FILES:  # a landing zone may hold a million
        return SourceFile(path, size, modified_ns, bytes_hash or content_hash, returned)
    described = json.loads(details)
    match ContentKind(kind):
        case ContentKind.QUERY | ContentKind.WINDOW:
            return QueryResult(_pin(described), content_hash, modified_ns)
        case ContentKind.FRAME:
            return FrameRows(described["id"], content_hash)
        case ContentKind.REPLAY:
            return QuarantinedRows(described["batch_id"], size, content_hash)
        case _:
            raise AssertionError(kind)


def kind_of(given: BatchContents) -> ContentKind:
    """Of a batch."""
    match given:
        case Files():
            return ContentKind.FILES
        case QueryResult():
            return ContentKind.QUERY
        case FrameRows():
            return ContentKind.FRAME
        case QuarantinedRows():
            return ContentKind.REPLAY
        case _:
            assert_never(given)


def batch_contents(members: Sequence[Content]) -> BatchContents:
    match members:
        case [QueryResult() | FrameRows() | QuarantinedRows() as content]:
            return content
        case _:
            return Files(tuple(content for content in members if isinstance(content, SourceFile)))


def _pin_details(pin: Pin) -> dict[str, object]:
    zones = {
        zone: [[file.path, file.size, file.modified_ns, file.content_hash] for file in files]
        for zone, files in pin.zones.items()
    }
    details: dict[str, object] = {"code": pin.code, "tables": dict(pin.tables), "zones": zones}
    if pin.refresh:
        details["refresh"] = True
    if pin.window is not None:
        details["window"] = asdict(pin.window)
    return details


def _pin(details: dict[str, Any]) -> Pin:
    zones = {zone: tuple(SourceFile(*file) for file in files) for zone, files in details["zones"].items()}
    window = Window(**details["window"]) if "window" in details else None
    return Pin(details["code"], details["tables"], zones, details.get("refresh", False), window)


# What is on record


def is_offered(tx: Tx, pipeline: str, table_key: str, content: Content) -> bool:
    query = sa.select(contents.c.id).where(
        contents.c.pipeline == pipeline,
        contents.c.path == content.name,
        contents.c.table_key == table_key,
        sa.text(OFFERED),
    )
    return tx.execute(query).first() is not None


def waiting(tx: Tx, pipeline: str, table_key: str | None) -> list[WaitingContent]:
    query = sa.select(*COLUMNS, contents.c.state, contents.c.attempts, contents.c.error).where(
        contents.c.pipeline == pipeline, contents.c.state.in_(WAITING), sa.text(OFFERED)
    )
    if table_key is not None:
        query = query.where(contents.c.table_key == table_key)
    found = ((content_of(row), row) for row in tx.execute(query))
    return [
        WaitingContent(content, FileState(row.state), row.attempts, row.error)
        for content, row in found
        if isinstance(content, SourceFile | QueryResult)
    ]


def register(
    tx: Tx, pipeline: str, table_key: str, given: Sequence[Content], repeats: Repeats | None = None
) -> Registration:
    """1. What a source offered before under these names and no longer does goes, and hands on contents that
    were not loaded. 2. Files whose content is on record are judged by `repeats`; without it, contents are
    taken as they are. 3. Each content, in the given order, finds its own record, or the record that it
    repeats, or is new. 4. The differences are written.
    """
    tx.lock_tables(table_key)
    latest = {content.name: content for content in given}
    at_path = _offered_under(
        tx, pipeline, [name for name, c in latest.items() if isinstance(c, SourceFile | QueryResult)]
    )
    replaced = {
        name: row
        for name, row in at_path.items()
        if row.table_key != table_key or not _is_same(row, latest[name], by_bytes=repeats is not None)
    }
    _retire(tx, replaced.values())
    judged = JudgedFiles(tuple(latest.values()))
    if repeats is not None:
        judged = judge(tx, pipeline, table_key, judged.contents, repeats, frozenset(replaced))
        returned = [c for c in judged.contents if c.name in at_path and c.name not in replaced]
        _retire(tx, [at_path[c.name] for c in returned if at_path[c.name].content_hash != c.identity])
    arrivals = _compare(tx, pipeline, table_key, judged.contents)
    if arrivals.updates:
        tx.execute(_REFRESH, arrivals.updates)
    if arrivals.inserts:
        same = {"pipeline": pipeline, "table_key": table_key, "registered_at": tx.now}
        tx.execute(contents.insert(), [same | _FRESH | row for row in arrivals.inserts])
    for name, error in judged.refused.items():
        _refuse(tx, pipeline, name, error)
    new = tuple(content for content in arrivals.new if content.name not in judged.refused)
    return Registration(new, tuple(arrivals.duplicates), judged.returned, judged.skipped)


def forget_vanished(tx: Tx, pipeline: str, paths: Collection[str]) -> None:
    locked = _lock_waiting(tx, pipeline)
    rows: list[Row] = []
    for some in chunks(set(paths)):
        rows += tx.execute(
            sa.select(*_RETIRED).where(
                contents.c.pipeline == pipeline,
                contents.c.path.in_(some),
                contents.c.state.in_(WAITING),
                contents.c.table_key.in_(locked),
                sa.text(OFFERED),
            )
        )
    _retire(tx, rows)


def requeue(tx: Tx, pipeline: str, paths: Collection[str] | None) -> int:
    _lock_waiting(tx, pipeline)
    again = (
        contents.update()
        .where(contents.c.pipeline == pipeline, contents.c.state == FileState.FAILED, sa.text(OFFERED))
        .values(state=FileState.PENDING, attempts=0, error="")
    )
    if paths is None:
        return tx.execute(again).rowcount
    return sum(tx.execute(again.where(contents.c.path.in_(some))).rowcount for some in chunks(set(paths)))


def mark_gone(tx: Tx, pipeline: str, table_key: str, paths: Collection[str]) -> None:
    for some in chunks(set(paths)):
        tx.execute(
            contents.update()
            .where(
                contents.c.pipeline == pipeline,
                contents.c.table_key == table_key,
                contents.c.path.in_(some),
                contents.c.state == FileState.COMMITTED,
                sa.text(OFFERED),
            )
            .values(gone_at=tx.now)
        )


def committed_in(tx: Tx, table_key: str, hashes: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for some in chunks(set(hashes)):
        query = sa.select(contents.c.content_hash, contents.c.batch_id).where(
            contents.c.table_key == table_key,
            contents.c.content_hash.in_(some),
            contents.c.state == FileState.COMMITTED,
        )
        found.update({row.content_hash: row.batch_id for row in tx.execute(query)})
    return found


def waiting_for(tx: Tx, table_key: str, hashes: Collection[str]) -> list[int]:
    """Ids of the records that would load these contents if they had not been loaded already."""
    ids: list[int] = []
    for some in chunks(set(hashes)):
        query = sa.select(contents.c.id).where(
            contents.c.table_key == table_key,
            contents.c.content_hash.in_(some),
            contents.c.state.in_(WAITING),
            _HERE,
        )
        ids += tx.execute(query.order_by(contents.c.id)).scalars()
    return ids


def hand_on(tx: Tx, table_key: str, hashes: Iterable[str]) -> None:
    """Of a content that no record holds, the oldest duplicate that is still offered becomes the holder."""
    for some in chunks(set(hashes)):
        content = (contents.c.table_key == table_key, contents.c.content_hash.in_(some))
        held = set(
            tx.execute(sa.select(contents.c.content_hash).where(*content, sa.text(HOLDS_CONTENT))).scalars()
        )
        heirs = tx.execute(
            sa.select(contents.c.id, contents.c.content_hash, contents.c.path)
            .where(*content, contents.c.state == FileState.DUPLICATE, _HERE)
            .order_by(contents.c.id.desc())
        )
        for heir in {row.content_hash: row for row in heirs if row.content_hash not in held}.values():
            tx.execute(
                contents.update()
                .where(contents.c.id == heir.id)
                .values(state=FileState.PENDING, attempts=0, error="", duplicate_of=None)
            )
            tx.execute(
                contents.update()
                .where(
                    contents.c.table_key == table_key,
                    contents.c.content_hash == heir.content_hash,
                    contents.c.state == FileState.DUPLICATE,
                )
                .values(duplicate_of=heir.path)
            )


def _offered_under(tx: Tx, pipeline: str, names: Collection[str]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for some in chunks(names):
        at_path = sa.select(*_RETIRED, contents.c.path, contents.c.bytes_hash).where(
            contents.c.pipeline == pipeline, contents.c.path.in_(some), sa.text(OFFERED)
        )
        rows.update({row.path: row for row in tx.execute(at_path)})
    return rows


def _is_same(row: Row, content: Content, *, by_bytes: bool) -> bool:
    """Of a file that is judged, only the bytes are known so far."""
    if by_bytes:
        return bool((row.bytes_hash or row.content_hash) == content.content_hash)
    return bool(row.content_hash == content.identity)


def _refuse(tx: Tx, pipeline: str, name: str, error: str) -> None:
    """FAILED without an attempt: only `requeue` lets it load."""
    tx.execute(
        contents.update()
        .where(
            contents.c.pipeline == pipeline,
            contents.c.path == name,
            contents.c.state == FileState.PENDING,
            sa.text(OFFERED),
        )
        .values(state=FileState.FAILED, attempts=0, error=error)
    )


def _retire(tx: Tx, rows: Collection[Row]) -> None:
    for some in chunks(row.id for row in rows):
        tx.execute(contents.update().where(contents.c.id.in_(some)).values(gone_at=tx.now))
    not_loaded = [row for row in rows if row.state in WAITING]
    for table_key in {row.table_key for row in not_loaded}:
        hand_on(tx, table_key, {row.content_hash for row in not_loaded if row.table_key == table_key})


def _compare(tx: Tx, pipeline: str, table_key: str, given: Collection[Content]) -> _Arrivals:
    own, holders = _records(tx, pipeline, table_key, {content.identity for content in given})
    arrivals = _Arrivals()
    for content in given:
        record = own.get((content.name, content.identity))
        if record is not None and record.gone_at is None:
            if record.content != content:  # a file that was touched, or copied again
                arrivals.updates.append(_refreshed(record, content, record.state, record.duplicate_of))
            continue
        holder = holders.get(content.identity)
        state = _state_on_arrival(record, holder)
        original = None
        if holder is not None and state is FileState.DUPLICATE:
            original = holder.content.name
            arrivals.duplicates.append((content.name, original))
        else:
            holders[content.identity] = record or _Record(None, state, None, None, content)
        if state is FileState.PENDING:
            arrivals.new.append(content)
        if record is not None:  # the source offered it before, and offers it again
            arrivals.updates.append(_refreshed(record, content, state, original))
        else:
            arrivals.inserts.append(values_of(content) | {"state": state, "duplicate_of": original})
    return arrivals


def _state_on_arrival(record: _Record | None, holder: _Record | None) -> FileState:
    if holder is not None and holder is not record:
        return FileState.DUPLICATE
    if record is None or record.state is FileState.DUPLICATE:
        return FileState.PENDING
    return record.state


def _records(
    tx: Tx, pipeline: str, table_key: str, hashes: Collection[str]
) -> tuple[dict[tuple[str, str], _Record], dict[str, _Record]]:
    """By name and hash, the pipeline's own records; by hash, the record that holds the content."""
    own: dict[tuple[str, str], _Record] = {}
    holders: dict[str, _Record] = {}
    columns = (
        *COLUMNS,
        contents.c.id,
        contents.c.state,
        contents.c.duplicate_of,
        contents.c.gone_at,
        contents.c.pipeline,
    )
    for some in chunks(hashes):
        query = sa.select(*columns, sa.literal_column(f"({HOLDS_CONTENT})").label("holds")).where(
            contents.c.table_key == table_key, contents.c.content_hash.in_(some)
        )
        for row in tx.execute(query):
            record = _Record(row.id, FileState(row.state), row.duplicate_of, row.gone_at, content_of(row))
            if row.pipeline == pipeline:
                own[row.path, row.content_hash] = record
            if row.holds:
                holders[row.content_hash] = record
    return own, holders


def _refreshed(
    record: _Record, content: Content, state: FileState, duplicate_of: str | None
) -> dict[str, object]:
    values = values_of(content)
    return {
        "row_id": record.id,
        "now_size": values["size"],
        "now_modified_ns": values["modified_ns"],
        "now_state": state,
        "now_duplicate_of": duplicate_of,
    }


def _lock_waiting(tx: Tx, pipeline: str) -> list[str]:
    """Locks the tables for which the pipeline has waiting contents, and returns their keys."""
    waiting_in = sa.select(contents.c.table_key).distinct()
    found = tx.execute(waiting_in.where(contents.c.pipeline == pipeline, contents.c.state.in_(WAITING)))
    table_keys = list(found.scalars())
    tx.lock_tables(*table_keys)
    return table_keys
