"""One writer per table. Safety comes from the fence; the expiry only says when others may take over, so
clocks that differ between machines cost waiting time, never correctness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from tallymark.errors import LeaseHeld, LeaseLost
from tallymark.ledger.database import Row, Tx
from tallymark.ledger.schema import leases


@dataclass(frozen=True)
class Lease:
    """The right to write one table. `fence` grows with every acquisition, so a late writer is refused."""

    table_key: str
    holder: str
    fence: int
    expires_at: datetime


def acquire(tx: Tx, table_key: str, holder: str, seconds: float, dead_holder: str | None) -> Lease:
    """`dead_holder` is a holder that the caller knows to be gone: its lease need not run out first."""
    first = postgresql.insert(leases) if tx.is_postgres else sqlite.insert(leases)
    tx.execute(first.values(table_key=table_key, fence=0).on_conflict_do_nothing())
    row = _locked_row(tx, table_key)
    assert row is not None  # noqa: S101 — inserted above
    if row.holder not in (None, dead_holder) and row.expires_at > tx.now:
        raise _held(table_key, row.holder, row.expires_at)
    lease = Lease(table_key, holder, row.fence + 1, tx.now + timedelta(seconds=seconds))
    _write(tx, table_key, fence=lease.fence, holder=holder, expires_at=lease.expires_at)
    return lease


def take_over(tx: Tx, table_key: str, holder: str, seconds: float) -> Lease:
    """Whoever has it."""
    row = _locked_row(tx, table_key)
    return acquire(tx, table_key, holder, seconds, None if row is None else row.holder)


def renew(tx: Tx, lease: Lease, seconds: float) -> Lease:
    """An expired lease that nobody took over is still ours."""
    require(tx, lease)
    renewed = replace(lease, expires_at=tx.now + timedelta(seconds=seconds))
    _write(tx, lease.table_key, expires_at=renewed.expires_at)
    return renewed


def raise_fence(tx: Tx, lease: Lease, above: int) -> Lease:
    require(tx, lease)
    raised = replace(lease, fence=max(lease.fence, above + 1))
    _write(tx, lease.table_key, fence=raised.fence)
    return raised


def release(tx: Tx, lease: Lease) -> None:
    if _is_current(_locked_row(tx, lease.table_key), lease):
        _write(tx, lease.table_key, holder=None, expires_at=None)


def require(tx: Tx, lease: Lease) -> None:
    """Locks the lease's row to the end of the transaction: nobody takes over between check and write."""
    row = _locked_row(tx, lease.table_key)
    if _is_current(row, lease):
        return
    fence = row.fence if row is not None else 0
    taker = row.holder if row is not None and row.holder else "nobody"
    raise LeaseLost(
        f"{lease.holder} no longer holds the lease on {lease.table_key}: its fence is {lease.fence}, "
        f"the table's is {fence}, held by {taker}",
        hint="nothing was recorded; run again: the next run asks the table what was committed",
        facts={"table_key": lease.table_key, "fence": lease.fence, "current_fence": fence, "holder": taker},
    )


def _locked_row(tx: Tx, table_key: str) -> Row | None:
    return tx.execute(
        sa.select(leases).where(leases.c.table_key == table_key).with_for_update()
    ).one_or_none()


def _is_current(row: Row | None, lease: Lease) -> bool:
    return row is not None and row.fence == lease.fence and row.holder == lease.holder


def _write(tx: Tx, table_key: str, **values: object) -> None:
    tx.execute(leases.update().where(leases.c.table_key == table_key).values(**values))


def _held(table_key: str, holder: str, until: datetime) -> LeaseHeld:
    return LeaseHeld(
        f"{table_key} is being written by {holder}, whose lease lasts until {until.isoformat()}",
        hint="wait for it and run again; the lease of a dead process runs out by itself at that time",
        facts={"table_key": table_key, "holder": holder, "expires_at": until.isoformat()},
    )
