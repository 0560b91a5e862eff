"""Quality gates: what must hold for the table as it would be after a load, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what only shows results must not load a parser
    from sqlglot import exp

from tallymark.model.table import is_provenance

AFTER = "tm_after"  # the relation that gates read: the table as it would be after the load
MOMENT = "TM_MOMENT"  # function (ISO text): that moment as a timestamp of the engine
MOST_SAMPLES = 5


class Severity(StrEnum):
    ERROR = "error"  # the load fails with nothing written
    WARN = "warn"  # the load goes on and says so


@dataclass(frozen=True)
class RowCheck:
    """Rows of which `offends` is true break the rule. All such rules together cost one look at the table."""

    offends: exp.Expr


@dataclass(frozen=True)
class MeasureCheck:
    """One number or time of the whole table, an aggregate; the table breaks the rule if `offends` is true."""

    name: str
    measure: exp.Expr
    offends: exp.Expr


@dataclass(frozen=True)
class QueryCheck:
    """Every row of the query's result breaks the rule."""

    query: exp.Query
    written: str = ""  # the same as its author wrote it, in Spark SQL; empty: nobody wrote it


Check = RowCheck | MeasureCheck | QueryCheck


@dataclass(frozen=True)
class Gate:
    rule: str  # such as numeric_ranges.amount, or the file of a quality test
    severity: Severity
    check: Check
    description: str = ""


@dataclass(frozen=True)
class GateResult:
    rule: str
    severity: Severity
    passed: bool
    rows: int = 0  # that break the rule; 1 when it is the table as a whole
    samples: tuple[dict[str, object], ...] = ()
    description: str = ""

    @property
    def stops(self) -> bool:
        return not self.passed and self.severity is Severity.ERROR

    def __str__(self) -> str:
        if self.passed:
            return f"{self.rule}: holds"
        found = "1 row" if self.rows == 1 else f"{self.rows} rows"
        told = f" ({self.description})" if self.description else ""
        return f"{self.rule}{told}: {found}" + (
            f", such as {_in_words(self.samples)}" if self.samples else ""
        )

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"severity": str(self.severity), "samples": list(self.samples)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GateResult:
        return cls(**{**data, "severity": Severity(data["severity"]), "samples": tuple(data["samples"])})


def results_from(kept: object) -> tuple[GateResult, ...]:
    """Of what the ledger keeps; None for a batch that had no gates."""
    return tuple(GateResult.from_dict(each) for each in kept) if isinstance(kept, list) else ()


def result_of(gate: Gate, rows: int, samples: Iterable[dict[str, object]]) -> GateResult:
    return GateResult(gate.rule, gate.severity, rows == 0, rows, tuple(samples), gate.description)


def _in_words(samples: Iterable[Mapping[str, object]]) -> str:
    """Without provenance, which is long; it is in the samples themselves."""
    rows = ([(name, value) for name, value in row.items() if not is_provenance(name)] for row in samples)
    return "; ".join(", ".join(f"{name}={value}" for name, value in row) for row in rows)
