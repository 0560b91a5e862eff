"""A ledger for one call: whoever merges through the library has none of their own.

To make one is a third of the work that Python has with a small load: its tables, and statements that
SQLAlchemy compiles anew for every database. So it is emptied and kept for the next call of this process.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tallymark.ledger.address import parse_address
from tallymark.ledger.database import Tx
from tallymark.ledger.ledger import Ledger, open_ledger
from tallymark.ledger.schema import metadata


@dataclass
class _Idle:
    lock: threading.Lock = field(default_factory=threading.Lock)
    ledgers: list[tuple[Ledger, tempfile.TemporaryDirectory[str]]] = field(default_factory=list)


_idle = _Idle()
_of_the_parent: list[_Idle] = []  # a connection must not even be closed by a process that did not open it


@contextmanager
def scratch_ledger() -> Iterator[Ledger]:
    """Empty, and nobody else's while it is used; what is in it does not outlive the process."""
    idle = _idle
    with idle.lock:
        taken = idle.ledgers.pop() if idle.ledgers else None
    ledger, folder = taken or _made()
    try:
        yield ledger
    finally:
        try:
            ledger._database.write(_empty)
        except Exception:  # how the call ended is for its caller to know, not this
            _remove(ledger, folder)
        else:
            with idle.lock:
                idle.ledgers.append((ledger, folder))


@contextmanager
def reading_ledger(url: str, opened: Ledger | None) -> Iterator[Ledger]:
    """The opened one, if any. Reading makes no ledger where there is none."""
    address = parse_address(url)
    if opened is not None:
        yield opened
    elif address.is_sqlite and not address.file.exists():
        with scratch_ledger() as empty:
            yield empty
    else:
        with open_ledger(url) as ledger:
            yield ledger


def _made() -> tuple[Ledger, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory(prefix="tallymark-")
    try:
        return open_ledger(f"sqlite:///{folder.name}/ledger.db", durable=False), folder
    except BaseException:
        folder.cleanup()
        raise


def _empty(tx: Tx) -> None:
    for table in reversed(metadata.sorted_tables):
        tx.execute(table.delete())


def _remove(ledger: Ledger, folder: tempfile.TemporaryDirectory[str]) -> None:
    ledger.close()
    with suppress(OSError):
        folder.cleanup()


@atexit.register
def _remove_idle() -> None:
    while _idle.ledgers:
        _remove(*_idle.ledgers.pop())


def _after_fork() -> None:
    global _idle  # noqa: PLW0603  the lock may be held by a thread that is not in this process
    _of_the_parent.append(_idle)
    _idle = _Idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
