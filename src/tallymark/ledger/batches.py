"""Batches: the intent before the effect, and what became of it.

Every write by a worker passes `_hold` first, in the same transaction: a worker whose lease was taken over
records nothing. `adopt` alone needs no lease, since it only records what a marker in the table proves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import sqlalchemy as sa

from tallymark.errors import FileChanged, LedgerError
from tallymark.ledger import files as file_records
from tallymark.ledger.database import Row, Tx, chunks, storable
from tallymark.ledger.facts import Lease
from tallymark.ledger.leases import require
from tallymark.ledger.runs import new_id
from tallymark.ledger.schema import batch_files, batches, files
from tallymark.model.batch import Batch, BatchKind, BatchState, FileState, SourceFile
from tallymark.model.receipt import Receipt
from tallymark.model.report import Failure

QUALITY = "quality"  # the fact of an error that holds what gates found; it has a column of its own

_CLAIMED = (
    files.c.id,
    files.c.path,
    files.c.content_hash,
    files.c.state,
    files.c.batch_id,
    files.c.gone_at.is_not(None).label("gone"),
)


def open_of(tx: Tx, table_key: str) -> list[Batch]:
    rows = tx.execute(
        sa.select(batches)
        .where(batches.c.table_key == table_key, batches.c.state == BatchState.PROCESSING)
        .order_by(batches.c.sequence)
    )
    return [_batch(tx, row) for row in rows.all()]


def last_sequence(tx: Tx, table_key: str) -> int:
    """The highest that a load has used or may use. A batch that failed leaves its number to the next one: of
    two loads with one number a table takes one, so that a late commit of the failed batch and the commit of
    the batch that has its files now exclude each other."""
    used = sa.or_(batches.c.state != BatchState.FAILED, batches.c.strategy.is_not(None))  # undone later
    highest = sa.select(sa.func.max(batches.c.sequence)).where(batches.c.table_key == table_key, used)
    return int(tx.execute(highest).scalar() or 0)


def create(
    tx: Tx,
    lease: Lease,
    run_id: str,
    pipeline: str,
    kind: BatchKind,
    *,
    given: Sequence[SourceFile],
    as_of: datetime,
    sequence_above: int,
) -> Batch:
    """1. Fence. 2. What only this batch knows (rows of a replay, a frame) is registered. 3. The batch and
    its files, in order, become PROCESSING."""
    _hold(tx, lease)
    if kind is not BatchKind.FILES:
        file_records.register(tx, pipeline, lease.table_key, given, kind)
    file_ids = [_claimable(found, file) for found, file in _find(tx, pipeline, lease.table_key, given)]
    sequence = max(last_sequence(tx, lease.table_key), sequence_above) + 1
    batch = Batch(new_id(tx.now), pipeline, lease.table_key, kind, tuple(given), sequence, as_of)
    _insert(tx, batch, created_at=tx.now, run_id=run_id, fence=lease.fence)
    _link(tx, batch.id, file_ids)
    _set_files(tx, file_ids, state=FileState.PROCESSING, batch_id=batch.id)
    return batch


def retry(tx: Tx, lease: Lease, batch_id: str, run_id: str) -> Batch:
    _hold(tx, lease)
    row = _get(tx, lease.table_key, batch_id)
    if row.state != BatchState.PROCESSING:
        raise _wrong_state(row, "retried")
    _set_batch(tx, batch_id, attempt=row.attempt + 1, run_id=run_id, fence=lease.fence)
    return _batch(tx, _get(tx, lease.table_key, batch_id))


def commit(tx: Tx, lease: Lease, batch_id: str, receipt: Receipt) -> None:
    _hold(tx, lease)
    row = _get(tx, lease.table_key, batch_id)
    if row.state == BatchState.COMMITTED:
        return
    if row.state != BatchState.PROCESSING:
        raise _wrong_state(row, "committed")
    _commit(tx, batch_id, receipt, finished_at=tx.now)


def fail(tx: Tx, lease: Lease, batch_id: str, error: Failure, blamed: Collection[str] | None) -> None:
    _hold(tx, lease)
    row = _get(tx, lease.table_key, batch_id)
    if row.state == BatchState.FAILED:
        return
    if row.state != BatchState.PROCESSING:
        raise _wrong_state(row, "failed")
    _set_failed(tx, batch_id, error)
    members = _members(tx, batch_id)
    at_fault = {m.path for m in members} if blamed is None else set(blamed)
    guilty = [m.id for m in members if m.path in at_fault]
    innocent = [m.id for m in members if m.path not in at_fault]
    _set_files(
        tx, guilty, state=FileState.FAILED, attempts=files.c.attempts + 1, error=storable(error.message)
    )
    _set_files(tx, innocent, state=FileState.PENDING)
    _let_go(tx, row, members)


def undo(tx: Tx, lease: Lease, above_sequence: int, error: Failure) -> list[Batch]:
    _hold(tx, lease)
    rows = tx.execute(
        sa.select(batches)
        .where(
            batches.c.table_key == lease.table_key,
            batches.c.state == BatchState.COMMITTED,
            batches.c.sequence > above_sequence,
        )
        .order_by(batches.c.sequence)
    ).all()
    for row in rows:
        _set_failed(tx, row.id, error)
        tx.execute(
            files.update()
            .where(files.c.batch_id == row.id, files.c.state == FileState.COMMITTED)
            .values(state=FileState.PENDING, batch_id=None, attempts=0)
        )
        _let_go(tx, row, _members(tx, row.id))
    return [_batch(tx, row) for row in rows]


def adopt(tx: Tx, pipeline: str, table_key: str, batch: Batch, receipt: Receipt) -> None:
    """1. The batch is COMMITTED, whatever the ledger thought of it. 2. Its given files are registered.
    3. Whatever record holds their contents is COMMITTED by it, unless another batch has the record."""
    tx.lock_tables(table_key)
    row = tx.execute(sa.select(batches).where(batches.c.id == batch.id)).one_or_none()
    if row is None:
        _insert(tx, batch, created_at=batch.as_of)
    if row is None or row.state != BatchState.COMMITTED:
        _commit(tx, batch.id, receipt, finished_at=receipt.committed_at)
    file_records.register(tx, pipeline, table_key, batch.files, batch.kind)
    waiting = file_records.waiting_for(tx, table_key, batch.content_hashes)
    linked = {m.id for m in _members(tx, batch.id)}
    _link(tx, batch.id, [file_id for file_id in waiting if file_id not in linked], start=len(linked))
    _set_files(tx, waiting, state=FileState.COMMITTED, batch_id=batch.id, error="")


def _hold(tx: Tx, lease: Lease) -> None:
    tx.lock_tables(lease.table_key)
    require(tx, lease)


def _get(tx: Tx, table_key: str, batch_id: str) -> Row:
    row = tx.execute(
        sa.select(batches).where(batches.c.id == batch_id, batches.c.table_key == table_key)
    ).one_or_none()
    if row is None:
        raise LedgerError(
            f"batch {batch_id} of {table_key} is not in the ledger", facts={"batch_id": batch_id}
        )
    return row


def _batch(tx: Tx, row: Row) -> Batch:
    members = tuple(SourceFile(*m[1:]) for m in _members(tx, row.id))
    kind = BatchKind(row.kind)
    return Batch(row.id, row.pipeline, row.table_key, kind, members, row.sequence, row.as_of, row.attempt)


def _members(tx: Tx, batch_id: str) -> Sequence[Row]:
    return tx.execute(
        sa.select(files.c.id, *file_records.SOURCE)
        .join(batch_files, batch_files.c.file_id == files.c.id)
        .where(batch_files.c.batch_id == batch_id)
        .order_by(batch_files.c.position)
    ).all()


def _insert(tx: Tx, batch: Batch, **values: object) -> None:
    tx.execute(
        batches.insert().values(
            id=batch.id,
            pipeline=batch.pipeline,
            table_key=batch.table_key,
            kind=batch.kind,
            state=BatchState.PROCESSING,
            sequence=batch.sequence,
            attempt=batch.attempt,
            as_of=batch.as_of,
            **values,
        )
    )


def _set_batch(tx: Tx, batch_id: str, **values: object) -> None:
    tx.execute(batches.update().where(batches.c.id == batch_id).values(**values))


def _set_failed(tx: Tx, batch_id: str, error: Failure) -> None:
    _set_batch(
        tx,
        batch_id,
        state=BatchState.FAILED,
        finished_at=tx.now,
        error_code=error.code,
        error_text=storable(error.message),
        error_hint=storable(error.hint),
        error_retry_safe=error.retry_safe,
        error_facts={name: fact for name, fact in error.facts.items() if name != QUALITY},
        quality=error.facts.get(QUALITY),
    )


def _set_files(tx: Tx, ids: Sequence[int], **values: object) -> None:
    for some in chunks(ids):
        tx.execute(files.update().where(files.c.id.in_(some)).values(**values))


def _link(tx: Tx, batch_id: str, file_ids: Sequence[int], *, start: int = 0) -> None:
    rows = [
        {"batch_id": batch_id, "position": position, "file_id": file_id}
        for position, file_id in enumerate(file_ids, start)
    ]
    if rows:
        tx.execute(batch_files.insert(), rows)


def _commit(tx: Tx, batch_id: str, receipt: Receipt, *, finished_at: datetime) -> None:
    _set_batch(
        tx,
        batch_id,
        state=BatchState.COMMITTED,
        finished_at=finished_at,
        strategy=receipt.strategy,
        receipt={**receipt.as_dict(), "facts": receipt.facts},
        error_code=None,  # of a failure that the marker disproved
        quality=[result.as_dict() for result in receipt.quality] or None,
    )
    tx.execute(
        files.update()
        .where(files.c.batch_id == batch_id, files.c.state == FileState.PROCESSING)
        .values(state=FileState.COMMITTED, error="")
    )


def _let_go(tx: Tx, row: Row, members: Sequence[Row]) -> None:
    """Rows of a replay or frame do not wait: their caller brings them again, or not. And a path that was
    overwritten meanwhile must not hold its old content from a duplicate."""
    if row.kind != BatchKind.FILES:
        _set_files(tx, [m.id for m in members], gone_at=tx.now)
    file_records.hand_on(tx, row.table_key, {m.content_hash for m in members})


def _find(
    tx: Tx, pipeline: str, table_key: str, given: Sequence[SourceFile]
) -> list[tuple[Row | None, SourceFile]]:
    found: dict[tuple[str, str], Row] = {}
    for some in chunks({file.content_hash for file in given}):
        rows = tx.execute(
            sa.select(*_CLAIMED).where(
                files.c.table_key == table_key, files.c.content_hash.in_(some), files.c.pipeline == pipeline
            )
        )
        found.update({(row.path, row.content_hash): row for row in rows})
    return [(found.get((file.path, file.content_hash)), file) for file in given]


def _claimable(row: Row | None, file: SourceFile) -> int:
    if row is None:
        raise LedgerError(f"{file.path}: this content is not registered for this table")
    if row.gone and row.state in file_records.WAITING:
        raise FileChanged(file.path, "vanished or got another content")
    if row.state not in file_records.WAITING:
        where = f" in batch {row.batch_id}" if row.batch_id else ""
        raise LedgerError(
            f"{file.path}: its content is {row.state}{where} for this table, so it cannot be loaded again",
            hint="run `tallymark status` to see where it stands",
            facts={"path": file.path, "state": row.state, "batch_id": row.batch_id},
        )
    return int(row.id)


def _wrong_state(row: Row, what: str) -> LedgerError:
    return LedgerError(
        f"batch {row.id} of {row.table_key} is {row.state} and cannot be {what}",
        hint="run `tallymark recover`: it asks the table what was committed",
        facts={"batch_id": row.id, "state": row.state},
    )
