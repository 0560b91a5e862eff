"""Batches: the intent before the effect, and what became of it.

Every write by a worker calls `_hold` first, in the same transaction: a worker whose lease was taken over
records nothing. Only `adopt` needs no lease, because it records what a marker in the table proves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import sqlalchemy as sa

from tallymark.errors import FileChanged, LedgerError
from tallymark.ledger import contents as records
from tallymark.ledger.database import Row, Tx, chunks, storable
from tallymark.ledger.leases import Lease, require
from tallymark.ledger.runs import new_id
from tallymark.ledger.schema import ContentKind, batch_members, batches, contents
from tallymark.model.batch import Batch, BatchContents, BatchState, Content, Files, FileState
from tallymark.model.receipt import Receipt
from tallymark.model.report import Failure

QUALITY = "quality"  # the fact of an error that holds what gates found; it has a column of its own

_CLAIMED = (
    contents.c.id,
    contents.c.path,
    contents.c.content_hash,
    contents.c.state,
    contents.c.batch_id,
    contents.c.gone_at.is_not(None).label("gone"),
)


def open_of(tx: Tx, table_key: str) -> list[Batch]:
    rows = tx.execute(
        sa.select(batches)
        .where(batches.c.table_key == table_key, batches.c.state == BatchState.PROCESSING)
        .order_by(batches.c.sequence)
    )
    return [_batch(tx, row) for row in rows.all()]


def last_sequence(tx: Tx, table_key: str) -> int:
    """The highest that a load has used or may use. A failed batch leaves its number to the next one: a table
    accepts only one load of a number, so a late commit of the failed batch and the commit of the batch that
    has its contents now exclude each other."""
    used = sa.or_(batches.c.state != BatchState.FAILED, batches.c.strategy.is_not(None))  # undone later
    highest = sa.select(sa.func.max(batches.c.sequence)).where(batches.c.table_key == table_key, used)
    return int(tx.execute(highest).scalar() or 0)


def create(
    tx: Tx,
    lease: Lease,
    run_id: str,
    pipeline: str,
    given: BatchContents,
    *,
    as_of: datetime,
    sequence_above: int,
) -> Batch:
    """1. Fence. 2. What only this batch knows (rows of a replay, a frame) is registered. 3. The batch and
    its contents, in order, become PROCESSING."""
    _hold(tx, lease)
    sequence = max(last_sequence(tx, lease.table_key), sequence_above) + 1
    batch = Batch(new_id(tx.now), pipeline, lease.table_key, given, sequence, as_of)
    if not isinstance(given, Files):
        records.register(tx, pipeline, lease.table_key, batch.members)
    ids = [_claimable(row, content) for row, content in _find(tx, batch)]
    _insert(tx, batch, created_at=tx.now, run_id=run_id, fence=lease.fence)
    _link(tx, batch.id, ids)
    _set_contents(tx, ids, state=FileState.PROCESSING, batch_id=batch.id)
    return batch


def retry(tx: Tx, lease: Lease, batch_id: str, run_id: str) -> Batch:
    _hold(tx, lease)
    row = _get(tx, lease.table_key, batch_id)
    if row.state != BatchState.PROCESSING:
        raise _wrong_state(row, "retried")
    _set_batch(tx, batch_id, attempt=row.attempt + 1, run_id=run_id, fence=lease.fence)
    return _batch(tx, _get(tx, lease.table_key, batch_id))


def commit(tx: Tx, lease: Lease, batch_id: str, receipt: Receipt, fence: int | None) -> None:
    _hold(tx, lease)
    row = _get(tx, lease.table_key, batch_id)
    if row.state == BatchState.COMMITTED:
        return
    if row.state != BatchState.PROCESSING:
        raise _wrong_state(row, "committed")
    _commit(tx, batch_id, receipt, finished_at=tx.now, fence=row.fence if fence is None else fence)


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
    _set_contents(
        tx, guilty, state=FileState.FAILED, attempts=contents.c.attempts + 1, error=storable(error.message)
    )
    _set_contents(tx, innocent, state=FileState.PENDING)
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
            contents.update()
            .where(contents.c.batch_id == row.id, contents.c.state == FileState.COMMITTED)
            .values(state=FileState.PENDING, batch_id=None, attempts=0)
        )
        _let_go(tx, row, _members(tx, row.id))
    return [_batch(tx, row) for row in rows]


def adopt(tx: Tx, pipeline: str, table_key: str, batch: Batch, receipt: Receipt, fence: int | None) -> None:
    """1. The batch is COMMITTED, whatever the ledger said about it. 2. Its contents are registered.
    3. The record that holds each content is COMMITTED by this batch, unless it belongs to another one."""
    tx.lock_tables(table_key)
    row = tx.execute(sa.select(batches).where(batches.c.id == batch.id)).one_or_none()
    if row is None:
        _insert(tx, batch, created_at=batch.as_of)
    if row is None or row.state != BatchState.COMMITTED:
        _commit(tx, batch.id, receipt, finished_at=receipt.committed_at, fence=fence)
    records.register(tx, pipeline, table_key, batch.members)
    waiting = records.waiting_for(tx, table_key, batch.content_hashes)
    linked = {m.id for m in _members(tx, batch.id)}
    _link(tx, batch.id, [record for record in waiting if record not in linked], start=len(linked))
    _set_contents(tx, waiting, state=FileState.COMMITTED, batch_id=batch.id, error="")


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
    given = records.batch_contents([records.content_of(member) for member in _members(tx, row.id)])
    return Batch(row.id, row.pipeline, row.table_key, given, row.sequence, row.as_of, row.attempt)


def _members(tx: Tx, batch_id: str) -> Sequence[Row]:
    return tx.execute(
        sa.select(*records.COLUMNS, contents.c.id)
        .join(batch_members, batch_members.c.file_id == contents.c.id)
        .where(batch_members.c.batch_id == batch_id)
        .order_by(batch_members.c.position)
    ).all()


def _insert(tx: Tx, batch: Batch, **values: object) -> None:
    tx.execute(
        batches.insert().values(
            id=batch.id,
            pipeline=batch.pipeline,
            table_key=batch.table_key,
            kind=records.kind_of(batch.contents),
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


def _set_contents(tx: Tx, ids: Sequence[int], **values: object) -> None:
    for some in chunks(ids):
        tx.execute(contents.update().where(contents.c.id.in_(some)).values(**values))


def _link(tx: Tx, batch_id: str, ids: Sequence[int], *, start: int = 0) -> None:
    rows = [
        {"batch_id": batch_id, "position": position, "file_id": member_id}
        for position, member_id in enumerate(ids, start)
    ]
    if rows:
        tx.execute(batch_members.insert(), rows)


def _commit(tx: Tx, batch_id: str, receipt: Receipt, *, finished_at: datetime, fence: int | None) -> None:
    _set_batch(
        tx,
        batch_id,
        state=BatchState.COMMITTED,
        finished_at=finished_at,
        fence=fence,
        strategy=receipt.strategy,
        receipt={**receipt.as_dict(), "facts": receipt.facts},
        error_code=None,  # of a failure that the marker disproved
        quality=[result.as_dict() for result in receipt.quality] or None,
    )
    tx.execute(
        contents.update()
        .where(contents.c.batch_id == batch_id, contents.c.state == FileState.PROCESSING)
        .values(state=FileState.COMMITTED, error="")
    )


def _let_go(tx: Tx, row: Row, members: Sequence[Row]) -> None:
    """Rows of a replay or a frame do not wait: only their caller can bring them again. And a path that was
    overwritten in the meantime must not keep its old content from a duplicate."""
    if row.kind != ContentKind.FILES:
        _set_contents(tx, [m.id for m in members], gone_at=tx.now)
    records.hand_on(tx, row.table_key, {m.content_hash for m in members})


def _find(tx: Tx, batch: Batch) -> list[tuple[Row | None, Content]]:
    found: dict[tuple[str, str], Row] = {}
    for some in chunks(set(batch.content_hashes)):
        rows = tx.execute(
            sa.select(*_CLAIMED).where(
                contents.c.table_key == batch.table_key,
                contents.c.content_hash.in_(some),
                contents.c.pipeline == batch.pipeline,
            )
        )
        found.update({(row.path, row.content_hash): row for row in rows})
    return [(found.get((content.name, content.identity)), content) for content in batch.members]


def _claimable(row: Row | None, content: Content) -> int:
    if row is None:
        raise LedgerError(f"{content.name}: this content is not registered for this table")
    if row.gone and row.state in records.WAITING:
        raise FileChanged(content.name, "vanished or was overwritten")
    if row.state not in records.WAITING:
        where = f" in batch {row.batch_id}" if row.batch_id else ""
        raise LedgerError(
            f"{content.name}: its content is {row.state}{where} for this table, so it cannot be loaded again",
            hint="run `tallymark status` to see its state",
            facts={"path": content.name, "state": row.state, "batch_id": row.batch_id},
        )
    return int(row.id)


def _wrong_state(row: Row, what: str) -> LedgerError:
    return LedgerError(
        f"batch {row.id} of {row.table_key} is {row.state} and cannot be {what}",
        hint="run `tallymark recover`: it asks the table what was committed",
        facts={"batch_id": row.id, "state": row.state},
    )
