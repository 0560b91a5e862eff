"""One writer per table: expiry by the injected clock, safety by the fence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tallymark.errors import LeaseHeld, LeaseLost
from tallymark.ledger import Lease, Ledger
from tallymark.model.batch import Batch, Files
from unit.ledger.ledger_setup import BROKEN, PIPELINE, TABLE, Clock, Worker, file, receipt


def test_a_held_lease_names_its_holder_and_its_end(ledger: Ledger, clock: Clock) -> None:
    lease = ledger.acquire_lease(TABLE, "host-1:42", 60)
    assert lease == Lease(TABLE, "host-1:42", 1, clock.now + timedelta(seconds=60))
    for holder in ("host-2:7", "host-1:42"):
        with pytest.raises(LeaseHeld) as caught:
            ledger.acquire_lease(TABLE, holder, 60)
        assert "host-1:42" in caught.value.message
        assert "2026-11-01T10:16:00+00:00" in caught.value.message
        assert caught.value.hint
    assert ledger.acquire_lease("another table", "host-2:7", 60).fence == 1


def test_an_expired_lease_is_taken_over_with_a_higher_fence(ledger: Ledger, clock: Clock) -> None:
    old = ledger.acquire_lease(TABLE, "old", 60)
    clock.forward(59.9)
    with pytest.raises(LeaseHeld):
        ledger.acquire_lease(TABLE, "new", 60)
    clock.forward(0.1)
    assert ledger.acquire_lease(TABLE, "new", 60).fence == old.fence + 1


def test_the_fence_grows_with_every_acquisition_and_past_the_tables(ledger: Ledger) -> None:
    fences = []
    for of_table in (0, 0, 41, 3):
        lease = ledger.acquire_lease(TABLE, "w", 60)
        lease = ledger.raise_fence(lease, above=of_table)
        fences.append(lease.fence)
        assert ledger.renew_lease(lease, 60).fence == lease.fence
        ledger.release_lease(lease)
    assert fences == [1, 2, 42, 43]


def test_only_the_holder_raises_the_fence(ledger: Ledger, clock: Clock) -> None:
    old = ledger.acquire_lease(TABLE, "old", 60)
    clock.forward(60)
    ledger.acquire_lease(TABLE, "new", 60)
    with pytest.raises(LeaseLost, match="held by new"):
        ledger.raise_fence(old, above=41)


def test_renewal_moves_the_end_even_after_expiry(ledger: Ledger, clock: Clock) -> None:
    lease = ledger.acquire_lease(TABLE, "w", 60)
    clock.forward(100)
    renewed = ledger.renew_lease(lease, 60)
    assert renewed == Lease(TABLE, "w", lease.fence, clock.now + timedelta(seconds=60))
    with pytest.raises(LeaseHeld):
        ledger.acquire_lease(TABLE, "other", 60)


def test_a_lost_lease_cannot_be_renewed_and_its_release_harms_nobody(ledger: Ledger, clock: Clock) -> None:
    old = ledger.acquire_lease(TABLE, "old", 60)
    clock.forward(60)
    new = ledger.acquire_lease(TABLE, "new", 60)
    with pytest.raises(LeaseLost, match="held by new"):
        ledger.renew_lease(old, 60)
    ledger.release_lease(old)
    ledger.release_lease(Lease("never seen", "w", 1, clock.now))
    assert ledger.renew_lease(new, 60).fence == new.fence


def test_a_released_lease_is_free_at_once_and_writes_no_more(worker: Worker) -> None:
    worker.register(file("a.csv"))
    worker.ledger.release_lease(worker.lease)
    with pytest.raises(LeaseLost, match="held by nobody"):
        worker.open(file("a.csv"))
    assert worker.ledger.acquire_lease(TABLE, "next", 60).fence == 2


WRITES: dict[str, Callable[[Worker, Batch], object]] = {
    "create": lambda w, b: w.open(file("free.csv")),
    "retry": lambda w, b: w.ledger.retry_batch(w.lease, b.id, w.run_id),
    "commit": lambda w, b: w.ledger.commit_batch(w.lease, b.id, receipt(b)),
    "fail": lambda w, b: w.ledger.fail_batch(w.lease, b.id, BROKEN),
    "undo": lambda w, b: w.ledger.undo_batches(w.lease, above_sequence=0, error=BROKEN),
    "renew": lambda w, b: w.ledger.renew_lease(w.lease, 60),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_stale_fence_is_refused_on_every_write(worker: Worker, write: str) -> None:
    worker.register(file("a.csv"), file("free.csv"))
    batch = worker.open(file("a.csv"))
    worker.clock.forward(3600)
    worker.ledger.acquire_lease(TABLE, worker.lease.holder, 60)  # the same name makes no difference
    before = (worker.waiting, worker.counts, worker.ledger.open_batches(TABLE), worker.ledger.history())
    with pytest.raises(LeaseLost):
        WRITES[write](worker, batch)
    after = (worker.waiting, worker.counts, worker.ledger.open_batches(TABLE), worker.ledger.history())
    assert after == before


def test_an_expired_lease_that_nobody_took_still_writes(worker: Worker) -> None:
    worker.register(file("a.csv"))
    worker.clock.forward(10_000)
    worker.commit(worker.open(file("a.csv")))
    assert worker.counts == {"COMMITTED": 1}


def test_a_lease_writes_only_its_own_table(worker: Worker) -> None:
    from tallymark.errors import LedgerError

    other = worker.ledger.acquire_lease("other table", "worker-1", 60)
    worker.register(file("a.csv"))
    batch = worker.open(file("a.csv"))
    with pytest.raises(LedgerError, match="not in the ledger"):
        worker.ledger.commit_batch(other, batch.id, receipt(batch))
    with pytest.raises(LedgerError, match="not registered"):
        worker.ledger.create_batch(
            other, worker.run_id, PIPELINE, Files((file("a.csv"),)), as_of=worker.clock()
        )
