"""Keeps a table's lease alive while a load works, and says so when it is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tallymark.errors import LeaseLost, LedgerError
from tallymark.ledger.facts import Lease
from tallymark.ledger.ledger import Ledger

LEASE_SECONDS = 120.0


class HeldLease:
    """`ensure` is called right before the commit: a worker whose lease has run out stops there, and if it
    does not get to stop, the fence in the destination refuses its commit."""

    def __init__(self, ledger: Ledger, lease: Lease):
        self._ledger = ledger
        self.lease = lease
        self._lost: LedgerError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def ensure(self) -> None:
        if self._lost is not None:
            raise self._lost
        self.lease = self._ledger.renew_lease(self.lease, LEASE_SECONDS)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(LEASE_SECONDS / 4):
            try:
                self.lease = self._ledger.renew_lease(self.lease, LEASE_SECONDS)
            except LeaseLost as error:
                self._lost = error
                return
            except LedgerError:
                continue  # the ledger may come back before the lease runs out


@contextmanager
def held_lease(ledger: Ledger, table_key: str, holder: str, at_least_fence: int = 0) -> Iterator[HeldLease]:
    lease = ledger.acquire_lease(table_key, holder, LEASE_SECONDS, at_least_fence=at_least_fence)
    held = HeldLease(ledger, lease)
    try:
        yield held
    finally:
        held.close()
        ledger.release_lease(held.lease)
