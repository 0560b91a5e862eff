"""Records of files: one for each table, path and content.

A record's `state` says what became of its content in the table. Its `gone_at` says that the path holds
this content no more. Of all records of a content, at most one *holds* it (`schema.HOLDS_CONTENT`): it
will load, loads or has loaded it; the others are DUPLICATE. A holder that goes before it was loaded
hands the content to a duplicate that is still there, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from tallymark.ledger.database import Row, Tx, chunks
from tallymark.ledger.facts import Registration, WaitingFile
from tallymark.ledger.schema import AT_PATH, HOLDS_CONTENT, files
from tallymark.model.batch import BatchKind, FileStat, FileState, SourceFile

WAITING = (FileState.PENDING, FileState.FAILED)
_HERE = files.c.gone_at.is_(None)
SOURCE = (files.c.path, files.c.size, files.c.modified_ns, files.c.content_hash, files.c.inputs)
_RETIRED = (files.c.id, files.c.table_key, files.c.content_hash, files.c.state)
_FRESH = {"attempts": 0, "error": ""}
_REFRESH = (
    files.update()
    .where(files.c.id == sa.bindparam("row_id"))
    .values(
        size=sa.bindparam("now_size"),
        modified_ns=sa.bindparam("now_modified_ns"),
        state=sa.bindparam("now_state"),
        duplicate_of=sa.bindparam("now_duplicate_of"),
        gone_at=None,
    )
)


@dataclass(frozen=True)
class _Record:
    """A row of `files`, or one about to become so (without id)."""

    id: int | None
    state: FileState
    duplicate_of: str | None
    gone_at: datetime | None
    file: SourceFile


@dataclass(frozen=True)
class _Arrivals:
    """What has to be written for the given files, and what is told about them."""

    new: list[SourceFile] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    inserts: list[dict[str, object]] = field(default_factory=list)
    updates: list[dict[str, object]] = field(default_factory=list)


def known(
    tx: Tx, pipeline: str, paths: Collection[str] | None, table_key: str | None
) -> dict[str, SourceFile]:
    query = sa.select(*SOURCE).where(files.c.pipeline == pipeline, sa.text(AT_PATH))
    if table_key is not None:
        query = query.where(files.c.table_key == table_key)
    if paths is None:
        return {row[0]: SourceFile(*row) for row in tx.execute(query)}
    asked = (query.where(files.c.path.in_(some)) for some in chunks(paths))
    return {row[0]: SourceFile(*row) for some in asked for row in tx.execute(some)}


def known_stats(tx: Tx, pipeline: str, table_key: str, paths: Collection[str]) -> set[FileStat]:
    query = sa.select(files.c.path, files.c.size, files.c.modified_ns).where(
        files.c.pipeline == pipeline,
        files.c.path.in_(sa.bindparam("paths", expanding=True)),
        files.c.table_key == table_key,
        files.c.state != FileState.FAILED,
        sa.text(AT_PATH),
    )
    return {FileStat(*row) for some in chunks(paths) for row in tx.execute(query, {"paths": some})}


def waiting(tx: Tx, pipeline: str, table_key: str | None) -> list[WaitingFile]:
    query = sa.select(*SOURCE, files.c.state, files.c.attempts, files.c.error).where(
        files.c.pipeline == pipeline, files.c.state.in_(WAITING), sa.text(AT_PATH)
    )
    if table_key is not None:
        query = query.where(files.c.table_key == table_key)
    return [WaitingFile(SourceFile(*row[:5]), FileState(row[5]), row[6], row[7]) for row in tx.execute(query)]


def register(
    tx: Tx, pipeline: str, table_key: str, given: Sequence[SourceFile], kind: BatchKind = BatchKind.FILES
) -> Registration:
    """1. What the paths held before and hold no more goes, and hands on contents that were not loaded.
    2. Each file, in the given order, finds its own record, or the record it repeats, or is new.
    3. The differences are written.
    """
    tx.lock_tables(table_key)
    latest = {file.path: file for file in given}
    if kind is BatchKind.FILES:
        _retire(tx, _replaced(tx, pipeline, table_key, latest))
    arrivals = _compare(tx, pipeline, table_key, latest.values())
    if arrivals.updates:
        tx.execute(_REFRESH, arrivals.updates)
    if arrivals.inserts:
        same = {"pipeline": pipeline, "table_key": table_key, "kind": kind, "registered_at": tx.now}
        tx.execute(files.insert(), [same | _FRESH | row for row in arrivals.inserts])
    return Registration(tuple(arrivals.new), tuple(arrivals.duplicates))


def forget_vanished(tx: Tx, pipeline: str, paths: Collection[str]) -> None:
    locked = _lock_waiting(tx, pipeline)
    rows: list[Row] = []
    for some in chunks(set(paths)):
        rows += tx.execute(
            sa.select(*_RETIRED).where(
                files.c.pipeline == pipeline,
                files.c.path.in_(some),
                files.c.state.in_(WAITING),
                files.c.table_key.in_(locked),
                sa.text(AT_PATH),
            )
        )
    _retire(tx, rows)


def requeue(tx: Tx, pipeline: str, paths: Collection[str] | None) -> int:
    _lock_waiting(tx, pipeline)
    again = (
        files.update()
        .where(files.c.pipeline == pipeline, files.c.state == FileState.FAILED, sa.text(AT_PATH))
        .values(state=FileState.PENDING, attempts=0, error="")
    )
    if paths is None:
        return tx.execute(again).rowcount
    return sum(tx.execute(again.where(files.c.path.in_(some))).rowcount for some in chunks(set(paths)))


def committed_here(tx: Tx, pipeline: str, table_key: str) -> list[SourceFile]:
    query = sa.select(*SOURCE).where(
        files.c.pipeline == pipeline,
        files.c.table_key == table_key,
        files.c.state == FileState.COMMITTED,
        sa.text(AT_PATH),
    )
    return [SourceFile(*row) for row in tx.execute(query.order_by(files.c.path))]


def mark_gone(tx: Tx, pipeline: str, table_key: str, paths: Collection[str]) -> None:
    for some in chunks(set(paths)):
        tx.execute(
            files.update()
            .where(
                files.c.pipeline == pipeline,
                files.c.table_key == table_key,
                files.c.path.in_(some),
                files.c.state == FileState.COMMITTED,
                sa.text(AT_PATH),
            )
            .values(gone_at=tx.now)
        )


def committed_in(tx: Tx, table_key: str, hashes: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for some in chunks(set(hashes)):
        query = sa.select(files.c.content_hash, files.c.batch_id).where(
            files.c.table_key == table_key,
            files.c.content_hash.in_(some),
            files.c.state == FileState.COMMITTED,
        )
        found.update({row.content_hash: row.batch_id for row in tx.execute(query)})
    return found


def waiting_for(tx: Tx, table_key: str, hashes: Collection[str]) -> list[int]:
    """Records that would load these contents, had they not been loaded already."""
    ids: list[int] = []
    for some in chunks(set(hashes)):
        query = sa.select(files.c.id).where(
            files.c.table_key == table_key,
            files.c.content_hash.in_(some),
            files.c.state.in_(WAITING),
            _HERE,
        )
        ids += tx.execute(query.order_by(files.c.id)).scalars()
    return ids


def hand_on(tx: Tx, table_key: str, hashes: Iterable[str]) -> None:
    """For contents that nobody holds any more: the oldest duplicate that is still there takes over."""
    for some in chunks(set(hashes)):
        content = (files.c.table_key == table_key, files.c.content_hash.in_(some))
        held = set(
            tx.execute(sa.select(files.c.content_hash).where(*content, sa.text(HOLDS_CONTENT))).scalars()
        )
        heirs = tx.execute(
            sa.select(files.c.id, files.c.content_hash, files.c.path)
            .where(*content, files.c.state == FileState.DUPLICATE, _HERE)
            .order_by(files.c.id.desc())
        )
        for heir in {row.content_hash: row for row in heirs if row.content_hash not in held}.values():
            tx.execute(
                files.update()
                .where(files.c.id == heir.id)
                .values(state=FileState.PENDING, attempts=0, error="", duplicate_of=None)
            )
            tx.execute(
                files.update()
                .where(
                    files.c.table_key == table_key,
                    files.c.content_hash == heir.content_hash,
                    files.c.state == FileState.DUPLICATE,
                )
                .values(duplicate_of=heir.path)
            )


def _replaced(tx: Tx, pipeline: str, table_key: str, latest: dict[str, SourceFile]) -> list[Row]:
    """Records that say another content, or another table, than the path now has."""
    rows: list[Row] = []
    for some in chunks(latest):
        at_path = sa.select(*_RETIRED, files.c.path).where(
            files.c.pipeline == pipeline, files.c.path.in_(some), sa.text(AT_PATH)
        )
        rows += [
            row
            for row in tx.execute(at_path)
            if (row.table_key, row.content_hash) != (table_key, latest[row.path].content_hash)
        ]
    return rows


def _retire(tx: Tx, rows: Collection[Row]) -> None:
    for some in chunks(row.id for row in rows):
        tx.execute(files.update().where(files.c.id.in_(some)).values(gone_at=tx.now))
    not_loaded = [row for row in rows if row.state in WAITING]
    for table_key in {row.table_key for row in not_loaded}:
        hand_on(tx, table_key, {row.content_hash for row in not_loaded if row.table_key == table_key})


def _compare(tx: Tx, pipeline: str, table_key: str, given: Collection[SourceFile]) -> _Arrivals:
    own, holders = _records(tx, pipeline, table_key, {file.content_hash for file in given})
    arrivals = _Arrivals()
    for file in given:
        record = own.get((file.path, file.content_hash))
        if record is not None and record.gone_at is None:
            if record.file != file:  # touched, or copied anew
                arrivals.updates.append(_refreshed(record, file, record.state, record.duplicate_of))
            continue
        holder = holders.get(file.content_hash)
        state = _state_on_arrival(record, holder)
        original = None
        if holder is not None and state is FileState.DUPLICATE:
            original = holder.file.path
            arrivals.duplicates.append((file.path, original))
        else:
            holders[file.content_hash] = record or _Record(None, state, None, None, file)
        if state is FileState.PENDING:
            arrivals.new.append(file)
        if record is not None:  # content that the path held once, and holds again
            arrivals.updates.append(_refreshed(record, file, state, original))
        else:
            arrivals.inserts.append(vars(file) | {"state": state, "duplicate_of": original})
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
    """By path and content, the pipeline's own; by content, whoever holds it."""
    own: dict[tuple[str, str], _Record] = {}
    holders: dict[str, _Record] = {}
    columns = (*SOURCE, files.c.id, files.c.state, files.c.duplicate_of, files.c.gone_at, files.c.pipeline)
    for some in chunks(hashes):
        query = sa.select(*columns, sa.literal_column(f"({HOLDS_CONTENT})").label("holds")).where(
            files.c.table_key == table_key, files.c.content_hash.in_(some)
        )
        for row in tx.execute(query):
            record = _Record(
                row.id, FileState(row.state), row.duplicate_of, row.gone_at, SourceFile(*row[:5])
            )
            if row.pipeline == pipeline:
                own[row.path, row.content_hash] = record
            if row.holds:
                holders[row.content_hash] = record
    return own, holders


def _refreshed(
    record: _Record, file: SourceFile, state: FileState, duplicate_of: str | None
) -> dict[str, object]:
    return {
        "row_id": record.id,
        "now_size": file.size,
        "now_modified_ns": file.modified_ns,
        "now_state": state,
        "now_duplicate_of": duplicate_of,
    }


def _lock_waiting(tx: Tx, pipeline: str) -> list[str]:
    """The tables for which it has waiting files, now locked."""
    waiting_in = sa.select(files.c.table_key).distinct()
    found = tx.execute(waiting_in.where(files.c.pipeline == pipeline, files.c.state.in_(WAITING)))
    table_keys = list(found.scalars())
    tx.lock_tables(*table_keys)
    return table_keys
