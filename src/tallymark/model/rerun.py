"""What a command may ask of transforms once, beside what is new."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rerun:
    full_refresh: bool = False  # ask for all rows again, as though the table were empty, and replace it
    since: str | None = None  # only rows from here on; texts, since only the result says the column's type
    until: str | None = None  # only rows before this

    @property
    def is_windowed(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def is_asked(self) -> bool:
        return self.full_refresh or self.is_windowed


ONLY_NEW = Rerun()  # nothing is asked for again


@dataclass(frozen=True)
class Window:
    """Rows whose `column` is in [since, until)."""

    column: str
    since: str | None
    until: str | None
