"""Which columns a column was made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ALL_COLUMNS = "*"


class InputKind(StrEnum):
    PIPELINE = "pipeline"
    LANDING_ZONE = "landing_zone"
    UNKNOWN = "unknown"  # one of several inputs whose columns are not known


@dataclass(frozen=True)
class ColumnSource:
    kind: InputKind
    name: str  # of the pipeline or landing zone; empty when it is not known which
    column: str  # ALL_COLUMNS where only the table has the names


@dataclass(frozen=True)
class ColumnLineage:
    column: str  # ALL_COLUMNS for a `SELECT *` whose columns are not known
    sources: tuple[ColumnSource, ...] = ()  # empty: made of no column, such as a constant or count(*)


@dataclass(frozen=True)
class PipelineLineage:
    pipeline: str
    columns: tuple[ColumnLineage, ...] = ()
    unknown: str = ""  # why nothing can be said
