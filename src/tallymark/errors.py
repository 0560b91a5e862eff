"""Every exception that Tallymark raises. Each has a code, facts, a hint, and says whether a retry is safe.

    TallymarkError
    ├── ConfigError            TM1xx  a file or argument that the user wrote is wrong
    ├── SourceError            TM2xx  the input cannot be read as declared
    │   ├── UnreadableFile            one file cannot be read; the others can still be loaded
    │   └── FileChanged               a file changed between hashing and commit
    ├── CheckError             TM3xx  the rows break a declared rule
    │   ├── TooManyBadRows
    │   └── GateFailed                the table would break a quality rule: nothing was written
    ├── PlanError              TM4xx  the load cannot be planned, or is not allowed
    │   ├── GuardTripped
    │   ├── TypeConflict
    │   ├── TiedRows
    │   └── Unsupported
    ├── DestinationError       TM5xx  the table refuses the load
    │   ├── NotATable
    │   ├── TableMoved                another writer committed since the plan was made: plan again
    │   ├── TableBusy                 another writer holds a lock on it
    │   ├── Fenced                    a newer writer has taken over: stop
    │   ├── CommitUnknown             the commit may or may not have happened: ask the marker
    │   ├── CountsDoNotBalance        rows were lost or added between two steps of a load
    │   ├── InputMoved                a table can no longer be read at the version that a load needs
    │   └── RowsRefused               values do not fit its columns, or violate a constraint
    ├── LedgerError            TM6xx  the audit database refuses
    │   ├── LeaseHeld                 another worker is writing this table
    │   └── LeaseLost                 this worker's lease has expired
    ├── RuntimeUnavailable     TM7xx  Java, Spark or a JAR is missing
    └── Cancelled              TM8xx  the caller cancelled the run; nothing is half-written

`retry_safe` means that running the same command again may succeed and does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class TallymarkError(Exception):
    code: ClassVar[str] = "TM000"
    retry_safe: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", facts: Mapping[str, object] | None = None):
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts: dict[str, object] = dict(facts or {})

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message

    def as_dict(self) -> dict[str, object]:
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retry_safe": self.retry_safe,
            "facts": self.facts,
        }


class ConfigError(TallymarkError):
    code = "TM100"


class SourceError(TallymarkError):
    code = "TM200"


class UnreadableFile(SourceError):
    """One file cannot be read. The flow uses `path` to set it aside and load the others."""

    code = "TM201"

    def __init__(self, path: str, reason: str, *, hint: str = ""):
        super().__init__(
            f"{path}: {reason}",
            hint=hint or "repair or remove the file, then run `tallymark requeue` and `tallymark run`",
            facts={"path": path},
        )
        self.path = path


class FileChanged(SourceError):
    code = "TM202"
    retry_safe = True

    def __init__(self, path: str, what: str):
        super().__init__(
            f"{path}: {what} after it was registered; nothing was written",
            hint="run again: the file is registered with its new content",
            facts={"path": path},
        )
        self.path = path


class CheckError(TallymarkError):
    code = "TM300"


class TooManyBadRows(CheckError):
    code = "TM301"


class GateFailed(CheckError):
    code = "TM302"


class PlanError(TallymarkError):
    code = "TM400"


class GuardTripped(PlanError):
    code = "TM401"


class TypeConflict(PlanError):
    code = "TM402"


class TiedRows(PlanError):
    code = "TM403"


class Unsupported(PlanError):
    code = "TM404"


class DestinationError(TallymarkError):
    code = "TM500"


class NotATable(DestinationError):
    code = "TM501"


class TableMoved(DestinationError):
    code = "TM502"
    retry_safe = True


class Fenced(DestinationError):
    code = "TM503"


class CommitUnknown(DestinationError):
    code = "TM504"
    retry_safe = True


class CountsDoNotBalance(DestinationError):
    """The rows that one step of a load hands on are not those that the next one counts. No file is at fault:
    it is a bug, or a trigger or rule of the table that changes what a statement does."""

    code = "TM505"

    def __init__(self, message: str, *, hint: str = "", facts: Mapping[str, object] | None = None):
        bug = "this is a bug in Tallymark: please report it with the output of `tallymark plan`"
        super().__init__(message, hint=hint or bug, facts=facts)


class TableBusy(DestinationError):
    code = "TM507"
    retry_safe = True


class InputMoved(DestinationError):
    """`found` is the table's current version, or None if the table no longer exists."""

    code = "TM509"
    retry_safe = True

    def __init__(self, table: str, *, wanted: str, found: str | None, why: str = ""):
        present = "the table no longer exists" if found is None else f"the table is at version {found}"
        super().__init__(
            f"{table}: cannot be read at version {wanted}: {why or present}",
            hint="run again to read its current version" if found else f"load {table} first",
            facts={"table": table, "wanted": wanted, "found": found},
        )


class RowsRefused(DestinationError):
    code = "TM510"

    @classmethod
    def by_constraint(cls, place: str, text: object) -> RowsRefused:
        hint = "rows of the batch violate a constraint of the table"
        return cls(f"{place}: refuses rows ({text})", hint=hint)


class LedgerError(TallymarkError):
    code = "TM600"


class LeaseHeld(LedgerError):
    code = "TM601"
    retry_safe = True


class LeaseLost(LedgerError):
    code = "TM602"
    retry_safe = True


class RuntimeUnavailable(TallymarkError):
    code = "TM700"


class Cancelled(TallymarkError):
    code = "TM800"
    retry_safe = True

    def __init__(self) -> None:
        super().__init__(
            "the run was cancelled; batches that were committed stay committed, nothing else was written",
            hint="run again to load the rest",
        )
