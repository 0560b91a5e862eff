"""Reads the ledger for `status`, `history` and single runs, and what loads need to know of earlier ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tallymark.ledger.batches import QUALITY
from tallymark.ledger.contents import COLUMNS, content_of
from tallymark.ledger.database import Row, Tx, chunks
from tallymark.ledger.schema import HOLDS_CONTENT, OFFERED, ContentKind, batch_members, batches, contents
from tallymark.model.batch import (
    BatchState,
    Fate,
    FileStat,
    FileState,
    QueryResult,
    SourceFile,
    replay_name,
)
from tallymark.model.gate import GateResult, results_from
from tallymark.model.receipt import Receipt
from tallymark.model.report import BatchRecord, FailedFile, Failure

MOST_FAILED_FILES = 20
_RESULTS = (ContentKind.QUERY, ContentKind.WINDOW)
_OFFERED_KINDS = (ContentKind.FILES, *_RESULTS)
_IS_FILE = contents.c.kind == ContentKind.FILES
_FILE_COLUMNS = (
    contents.c.path,
    contents.c.size,
    contents.c.modified_ns,
    sa.func.coalesce(contents.c.bytes_hash, contents.c.content_hash),
    contents.c.returned,
)


@dataclass(frozen=True)
class PipelineSummary:
    files: dict[str, int]  # state → number of files
    batches: int  # committed
    last_receipt: Receipt | None
    last_error: Failure | None  # only when newer than the last commit
    failed_files: tuple[FailedFile, ...]
    quality: tuple[GateResult, ...] = ()  # of the last batch that had gates


def pipeline_summary(tx: Tx, pipeline: str) -> PipelineSummary:
    commit = _last(tx, pipeline, BatchState.COMMITTED)
    failure = _last(tx, pipeline, BatchState.FAILED)
    if commit is not None and failure is not None and failure.finished_at <= commit.finished_at:
        failure = None
    return PipelineSummary(
        files=_files_by_state(tx, pipeline),
        batches=_committed(tx, pipeline),
        last_receipt=_receipt(commit),
        last_error=_failure(failure),
        failed_files=_failed_files(tx, pipeline),
        quality=_last_quality(tx, pipeline),
    )


def history(tx: Tx, pipeline: str | None, limit: int) -> list[BatchRecord]:
    query = _records()
    if pipeline is not None:
        query = query.where(batches.c.pipeline == pipeline)
    newest = query.order_by(batches.c.created_at.desc(), batches.c.sequence.desc()).limit(limit)
    return _batch_records(tx.execute(newest))


def batches_of_run(tx: Tx, run_id: str) -> list[BatchRecord]:
    mine = _records().where(batches.c.run_id == run_id)
    return _batch_records(tx.execute(mine.order_by(batches.c.created_at, batches.c.sequence)))


def committed_batches(tx: Tx, table_key: str) -> list[BatchRecord]:
    query = _records().where(batches.c.table_key == table_key, batches.c.state == BatchState.COMMITTED)
    return _batch_records(tx.execute(query.order_by(batches.c.sequence)))


def fates(tx: Tx, pipeline: str, batch_ids: Collection[str]) -> dict[str, Fate]:
    replays = _replays(tx, pipeline)
    found: dict[str, Fate] = {}
    for some in chunks(set(batch_ids)):
        query = sa.select(batches.c.id, batches.c.state, batches.c.fence, batches.c.finished_at)
        for row in tx.execute(query.where(batches.c.id.in_(some))):
            replayed = replay_name(row.id) in replays
            settled_at = replays[replay_name(row.id)] if replayed else row.finished_at
            found[row.id] = Fate(BatchState(row.state), row.fence, replayed, settled_at)
    return found


def _replays(tx: Tx, pipeline: str) -> dict[str, datetime | None]:
    """Name of the content of each committed replay → when it was committed."""
    query = (
        sa.select(contents.c.path, batches.c.finished_at)
        .join(batch_members, batch_members.c.file_id == contents.c.id)
        .join(batches, batches.c.id == batch_members.c.batch_id)
        .where(
            batches.c.pipeline == pipeline,
            batches.c.state == BatchState.COMMITTED,
            batches.c.kind == ContentKind.REPLAY,
        )
    )
    return {row.path: row.finished_at for row in tx.execute(query)}


def last_receipt(tx: Tx, table_key: str) -> Receipt | None:
    newest = (
        sa.select(batches)
        .where(batches.c.table_key == table_key, batches.c.state == BatchState.COMMITTED)
        .order_by(batches.c.sequence.desc())
        .limit(1)
    )
    return _receipt(tx.execute(newest).one_or_none())


def results(tx: Tx, table_key: str, states: Collection[BatchState]) -> list[QueryResult]:
    found = map(content_of, tx.execute(_results(table_key, states, _RESULTS)))
    return [result for result in found if isinstance(result, QueryResult)]


def last_result(tx: Tx, table_key: str) -> QueryResult | None:
    row = tx.execute(_results(table_key, [BatchState.COMMITTED], [ContentKind.QUERY]).limit(1)).one_or_none()
    result = None if row is None else content_of(row)
    return result if isinstance(result, QueryResult) else None


def _results(
    table_key: str, states: Collection[BatchState], kinds: Collection[ContentKind]
) -> sa.Select[Any]:
    """What transforms made for the table, the newest first."""
    return (
        sa.select(*COLUMNS)
        .join(batch_members, batch_members.c.file_id == contents.c.id)
        .join(batches, batches.c.id == batch_members.c.batch_id)
        .where(batches.c.table_key == table_key, batches.c.state.in_(states), contents.c.kind.in_(kinds))
        .order_by(batches.c.sequence.desc())
    )


def known_files(
    tx: Tx, pipeline: str, paths: Collection[str] | None, table_key: str | None
) -> dict[str, SourceFile]:
    query = sa.select(*_FILE_COLUMNS).where(contents.c.pipeline == pipeline, _IS_FILE, sa.text(OFFERED))
    if table_key is not None:
        query = query.where(contents.c.table_key == table_key)
    if paths is None:
        return {row[0]: SourceFile(*row) for row in tx.execute(query)}
    asked = (query.where(contents.c.path.in_(some)) for some in chunks(paths))
    return {row[0]: SourceFile(*row) for some in asked for row in tx.execute(some)}


def known_stats(tx: Tx, pipeline: str, table_key: str, paths: Collection[str]) -> set[FileStat]:
    query = sa.select(contents.c.path, contents.c.size, contents.c.modified_ns).where(
        contents.c.pipeline == pipeline,
        contents.c.path.in_(sa.bindparam("paths", expanding=True)),
        contents.c.table_key == table_key,
        contents.c.state != FileState.FAILED,
        sa.text(OFFERED),
    )
    return {FileStat(*row) for some in chunks(paths) for row in tx.execute(query, {"paths": some})}


def committed_here(tx: Tx, pipeline: str, table_key: str) -> list[SourceFile]:
    query = sa.select(*_FILE_COLUMNS).where(
        contents.c.pipeline == pipeline,
        contents.c.table_key == table_key,
        contents.c.state == FileState.COMMITTED,
        _IS_FILE,
        sa.text(OFFERED),
    )
    return [SourceFile(*row) for row in tx.execute(query.order_by(contents.c.path))]


def _records() -> sa.Select[Any]:
    members = (
        sa.select(sa.func.count())
        .select_from(batch_members)
        .where(batch_members.c.batch_id == batches.c.id)
        .scalar_subquery()
    )
    return sa.select(batches, members.label("file_count"))


def _batch_records(rows: Iterable[Row]) -> list[BatchRecord]:
    return [
        BatchRecord(
            batch_id=row.id,
            pipeline=row.pipeline,
            table=row.receipt["table"] if row.receipt else row.table_key,
            state=row.state,
            sequence=row.sequence,
            attempts=row.attempt,
            files=row.file_count,
            as_of=row.as_of,
            finished_at=row.finished_at,
            receipt=_receipt(row),
            error=_failure(row),
        )
        for row in rows
    ]


def _last(tx: Tx, pipeline: str, state: BatchState) -> Row | None:
    return tx.execute(
        sa.select(batches)
        .where(batches.c.pipeline == pipeline, batches.c.state == state)
        .order_by(batches.c.finished_at.desc(), batches.c.sequence.desc())
        .limit(1)
    ).one_or_none()


def _committed(tx: Tx, pipeline: str) -> int:
    mine = (batches.c.pipeline == pipeline, batches.c.state == BatchState.COMMITTED)
    return int(tx.execute(sa.select(sa.func.count()).select_from(batches).where(*mine)).scalar_one())


def _files_by_state(tx: Tx, pipeline: str) -> dict[str, int]:
    """A waiting file that is gone waits no more, so it is not counted."""
    counted = sa.or_(contents.c.state == FileState.DUPLICATE, sa.text(HOLDS_CONTENT))
    query = (
        sa.select(contents.c.state, sa.func.count().label("number"))
        .where(contents.c.pipeline == pipeline, contents.c.kind.in_(_OFFERED_KINDS), counted)
        .group_by(contents.c.state)
    )
    return {row.state: row.number for row in tx.execute(query)}


def _failed_files(tx: Tx, pipeline: str) -> tuple[FailedFile, ...]:
    query = (
        sa.select(contents.c.path, contents.c.attempts, contents.c.error)
        .where(
            contents.c.pipeline == pipeline,
            contents.c.state == FileState.FAILED,
            contents.c.gone_at.is_(None),
        )
        .order_by(contents.c.path)
        .limit(MOST_FAILED_FILES)
    )
    return tuple(FailedFile(path, attempts, error or "") for path, attempts, error in tx.execute(query))


def _last_quality(tx: Tx, pipeline: str) -> tuple[GateResult, ...]:
    newest = (
        sa.select(batches.c.quality)
        .where(batches.c.pipeline == pipeline, batches.c.quality.is_not(None))
        .order_by(batches.c.finished_at.desc(), batches.c.sequence.desc())
        .limit(1)
    )
    return results_from(tx.execute(newest).scalar())


def _receipt(row: Row | None) -> Receipt | None:
    if row is None or not row.receipt:
        return None
    return replace(Receipt.from_dict(row.receipt), quality=results_from(row.quality))


def _failure(row: Row | None) -> Failure | None:
    if row is None or row.error_code is None:
        return None
    facts = row.error_facts if row.quality is None else {**(row.error_facts or {}), QUALITY: row.quality}
    return Failure(row.error_code, row.error_text, row.error_hint, row.error_retry_safe, facts)
