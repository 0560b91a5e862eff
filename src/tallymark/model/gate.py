"""Quality gates: rules for the table as it would be after a load, and the results of checking them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # code that only shows results must not import a parser
    from sqlglot import exp

from tallymark.model.table import is_provenance

AFTER = "tm_after"  # the relation that gates query: the table as it would be after the load
MOMENT = "TM_MOMENT"  # function of an ISO text: the same moment as a timestamp of the engine
MOST_SAMPLES = 5


class Severity(StrEnum):
    ERROR = "error"  # the load fails and writes nothing
    WARN = "warn"  # the load continues with a warning


@dataclass(frozen=True)
class RowCheck:
    """Rows for which `offends` is true break the rule. All such rules share one scan of the table."""

    offends: exp.Expr


@dataclass(frozen=True)
class MeasureCheck:
    """An aggregate of the whole table, a number or a time. The table breaks the rule if `offends` is true."""

    name: str
    measure: exp.Expr
    offends: exp.Expr


@dataclass(frozen=True)
class QueryCheck:
    """Every row that the query returns breaks the rule."""

    query: exp.Query
    written: str = ""  # the query as its author wrote it, in Spark SQL; empty for a generated query


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
    rows: int = 0  # that break the rule; 1 if the table as a whole does
    samples: tuple[dict[str, object], ...] = ()
    description: str = ""

    @property
    def stops(self) -> bool:
        return not self.passed and self.severity is Severity.ERROR

    def __str__(self) -> str:
        if self.passed:
            return f"{self.rule}: passed"
        found = "1 row" if self.rows == 1 else f"{self.rows} rows"
        described = f" ({self.description})" if self.description else ""
        return f"{self.rule}{described}: {found}" + (
            f", such as {_in_words(self.samples)}" if self.samples else ""
        )

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"severity": str(self.severity), "samples": list(self.samples)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GateResult:
        return cls(**{**data, "severity": Severity(data["severity"]), "samples": tuple(data["samples"])})


def results_from(kept: object) -> tuple[GateResult, ...]:
    """Parses what the ledger keeps: None for a batch without gates."""
    return tuple(GateResult.from_dict(each) for each in kept) if isinstance(kept, list) else ()


def result_of(gate: Gate, rows: int, samples: Iterable[dict[str, object]]) -> GateResult:
    return GateResult(gate.rule, gate.severity, rows == 0, rows, tuple(samples), gate.description)


def _in_words(samples: Iterable[Mapping[str, object]]) -> str:
    """Without provenance columns, which are long. The samples themselves have them."""
    rows = ([(name, value) for name, value in row.items() if not is_provenance(name)] for row in samples)
    return "; ".join(", ".join(f"{name}={value}" for name, value in row) for row in rows)
