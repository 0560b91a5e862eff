"""Every exception of Tallymark. Each carries a code, the facts, a hint and whether a retry is safe.

    TallymarkError
    ├── ConfigError            TM1xx  a file or argument the user wrote is wrong
    ├── SourceError            TM2xx  the input cannot be read as declared
    │   ├── UnreadableFile            one file is at fault: the rest may go on
    │   └── FileChanged               content changed between hashing and commit
    ├── CheckError             TM3xx  the rows break a declared rule
    │   ├── TooManyBadRows
    │   └── GateFailed                the table would break a quality rule: nothing was written
    ├── PlanError              TM4xx  the load cannot be planned, or must not be done
    │   ├── GuardTripped
    │   ├── TypeConflict
    │   ├── TiedRows
    │   └── Unsupported
    ├── DestinationError       TM5xx  the table refuses
    │   ├── NotATable
    │   ├── TableMoved                somebody else committed since the plan was made: plan again
    │   ├── TableBusy                 another writer holds it locked
    │   ├── Fenced                    a newer writer has taken over: stop
    │   ├── CommitUnknown             the commit may or may not have landed: ask the marker
    │   ├── CountsDiffer              the commit did not do what the plan said
    │   ├── InputMoved                a table can no longer be read at the version that a load wants
    │   └── RowsRefused               values do not fit its columns, or a constraint forbids them
    ├── LedgerError            TM6xx  the audit database refuses
    │   ├── LeaseHeld                 another worker writes this table
    │   └── LeaseLost                 our lease has run out
    └── RuntimeUnavailable     TM7xx  Java, Spark or a JAR is missing

`retry_safe` says that running the same command again can help and can do no harm.
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
    """One named file cannot be read. `path` lets the flow set it aside and go on with the rest."""

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
            hint="run again: the file is registered anew with its present content",
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


class CountsDiffer(DestinationError):
    code = "TM505"


class TableBusy(DestinationError):
    code = "TM507"
    retry_safe = True


class InputMoved(DestinationError):
    """`found` is the version that the table has now; None when it is gone."""

    code = "TM509"
    retry_safe = True

    def __init__(self, table: str, *, wanted: str, found: str | None, why: str = ""):
        present = "there is no such table any more" if found is None else f"the table is at {found}"
        super().__init__(
            f"{table}: cannot be read at version {wanted}: {why or present}",
            hint="run again to read the table as it is now" if found else f"load {table} first",
            facts={"table": table, "wanted": wanted, "found": found},
        )


class RowsRefused(DestinationError):
    code = "TM510"

    @classmethod
    def by_constraint(cls, place: str, text: object) -> RowsRefused:
        hint = "a constraint of the table forbids what the batch brings"
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
