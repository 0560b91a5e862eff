"""How a caller cancels work that is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event

from tallymark.errors import Cancelled


@dataclass(frozen=True)
class Cancellation:
    """Give it to a call, and `cancel` it from any thread. The work stops between two steps of its flow, never
    in a commit: batches that are committed stay committed, nothing is half-written."""

    _requested: Event = field(default_factory=Event, repr=False, compare=False)

    def cancel(self) -> None:
        self._requested.set()

    @property
    def is_set(self) -> bool:
        return self._requested.is_set()

    def check(self) -> None:
        """Raises Cancelled after `cancel`."""
        if self.is_set:
            raise Cancelled
