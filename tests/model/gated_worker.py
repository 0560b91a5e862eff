"""A worker whose every call to ledger and destination waits until the scheduler lets it through.

It runs the real flow in a thread of its own, but never at the same time as anything else: a schedule is a
list of (worker, order) pairs, and gives the same result every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from tallymark.errors import CommitUnknown, DestinationError, LedgerError
from tallymark.model.report import Cancellation, PipelineReport

_STUCK_SECONDS = 60


class Order(StrEnum):
    GO = "go"
    REFUSE = "refuse"  # the call fails and has done nothing
    LOSE_ANSWER = "lose answer"  # the call has done its work, and fails
    CRASH = "crash"


class Killed(BaseException):
    """The process is gone: what its `finally` blocks still try has no effect any more."""


class Worker:
    def __init__(self, name: str, pipeline: str):
        self.name = name
        self.pipeline = pipeline
        self.gate = ""  # where it waits
        self.passed: list[str] = []
        self.dead = False
        self.report: PipelineReport | None = None
        self.cancellation = Cancellation()
        self._order = Order.GO
        self._go = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"{self.name}@{self.gate or 'end'}"

    @property
    def done(self) -> bool:
        return self._thread is not None and not self.gate

    def start(self, work: Callable[[], PipelineReport]) -> None:
        def live() -> None:
            try:
                self.report = work()
            except Killed:
                self.dead = True
            finally:
                self.gate = ""
                self._arrived.release()

        self._thread = threading.Thread(target=live, name=self.name, daemon=True)
        self._thread.start()
        self._wait()

    def step(self, order: Order = Order.GO) -> None:
        if self.done:
            return
        self._order = order
        self._go.release()
        self._wait()

    def run_until(self, *gates: str) -> None:
        """To the next of these gates, not the one it waits at."""
        self.step()
        while not self.done and self.gate not in gates:
            self.step()

    def finish(self) -> PipelineReport | None:
        while not self.done:
            self.step()
        return self.report

    def crash(self) -> None:
        self.step(Order.CRASH)

    def ledger_gate(self, name: str, call: Callable[[], Any]) -> Any:
        return self._pass(name, call, LedgerError("the ledger is away"), LedgerError("the answer got lost"))

    def destination_gate(self, name: str, call: Callable[[], Any]) -> Any:
        lost = CommitUnknown if name == "commit" else DestinationError
        return self._pass(name, call, DestinationError("the table is away"), lost("the answer got lost"))

    def _pass(self, name: str, call: Callable[[], Any], refused: Exception, lost: Exception) -> Any:
        if threading.current_thread() is not self._thread:
            raise refused  # a heartbeat, after half a minute of real time: the world beats by itself
        if self.dead:
            raise Killed
        self.gate = name
        self._arrived.release()
        self._go.acquire()
        match self._order:
            case Order.CRASH:
                self.dead = True
                raise Killed
            case Order.REFUSE:
                raise refused
            case Order.GO | Order.LOSE_ANSWER:
                self.passed.append(name)
                answer = call()
                if self._order is Order.LOSE_ANSWER:
                    raise lost
                return answer

    def _wait(self) -> None:
        assert self._arrived.acquire(timeout=_STUCK_SECONDS), f"{self} does not come to its next call"


class GatedLedger:
    """The real ledger behind a worker's gate."""

    def __init__(self, ledger: Any, gate: Callable[[str, Callable[[], Any]], Any]):
        self._real = ledger
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        return lambda *args, **kwargs: self._gate(name, lambda: method(*args, **kwargs))
