"""Keeps a table's lease alive during a load, and reports when it is lost."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from tallymark.errors import LeaseHeld, LeaseLost, LedgerError
from tallymark.ledger.leases import Lease
from tallymark.ledger.ledger import Ledger

log = logging.getLogger(__name__)

LEASE_SECONDS = 120.0
_HOST = socket.gethostname()
_CLOCK_GRAIN = timedelta(seconds=2)  # Linux gives the time of its boot in whole seconds


class HeldLease:
    """`ensure` is called right before the commit: a worker whose lease was taken over stops there. If it is
    too late to stop, the fence in the destination refuses its commit."""

    def __init__(self, ledger: Ledger, lease: Lease):
        self._ledger = ledger
        self.lease = lease
        self._lost: LedgerError | None = None
        self._changing = threading.Lock()  # a heartbeat must not renew with a fence that was just raised
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def ensure(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._renew()

    def raise_fence(self, above: int) -> None:
        with self._changing:
            if self.lease.fence <= above:
                self.lease = self._ledger.raise_fence(self.lease, above=above)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _renew(self) -> None:
        with self._changing:
            self.lease = self._ledger.renew_lease(self.lease, LEASE_SECONDS)

    def _beat(self) -> None:
        while not self._stop.wait(LEASE_SECONDS / 4):
            try:
                self._renew()
            except LeaseLost as error:
                self._lost = error
                return
            except LedgerError:
                continue  # the ledger may be back before the lease expires


@contextmanager
def held_lease(ledger: Ledger, table_key: str, holder: str) -> Iterator[HeldLease]:
    held = HeldLease(ledger, _acquire(ledger, table_key, holder))
    try:
        yield held
    finally:
        held.close()
        _release(ledger, held.lease)


def _release(ledger: Ledger, lease: Lease) -> None:
    """A lease that cannot be released expires by itself; the load itself succeeded."""
    try:
        ledger.release_lease(lease)
    except Exception as error:
        log.warning("%s: the lease was not released and expires by itself: %s", lease.table_key, error)


def holder_name() -> str:
    return f"{_HOST}:{os.getpid()}:{uuid4().hex[:8]}"


def _acquire(ledger: Ledger, table_key: str, holder: str) -> Lease:
    try:
        return ledger.acquire_lease(table_key, holder, LEASE_SECONDS)
    except LeaseHeld as held:
        other = str(held.facts.get("holder"))
        if not died_here(other):
            raise
        return ledger.acquire_lease(table_key, holder, LEASE_SECONDS, dead_holder=other)


def process_lives(host: str, pid: int, since: datetime) -> bool | None:
    """Whether a process that worked at that time still lives; None if it was on another machine. A process
    that started later only has the same number: in a container, every start may have it."""
    if host != _HOST:
        return None
    if died_here(f"{host}:{pid}"):
        return False
    started_at = _process_start(pid)
    return started_at is None or started_at <= since + _CLOCK_GRAIN


def _process_start(pid: int) -> datetime | None:
    """None where the system does not tell: outside Linux."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        seconds = int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return datetime.fromtimestamp(seconds, UTC)


def died_here(holder: str) -> bool:
    """Whether it was a process of this machine that no longer exists: then nobody needs to wait for its
    lease. If that is wrong (two machines with one name), the fence still refuses the slower of the two."""
    host, _, rest = holder.partition(":")
    pid = rest.partition(":")[0]
    if host != _HOST or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
