"""A plan: the effect of a strategy on one table, as data. Building it writes nothing.

Strategies make it, destinations apply it, `explain` prints it: one plan, several readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sqlglot import exp

from tallymark.model.settings import MergeSettings
from tallymark.model.table import Column, TableShape


class Label(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    UNCHANGED = "unchanged"
    SKIP = "skip"  # a row of the batch that has no say


# Columns that the flow puts beside the user's in `incoming`, and the label query in its result.
FILE_ORDER = "_tm_file"  # position of the file in the batch
ROW_BLOCK = "_tm_block"  # offset of the split in its file
ROW_ORDER = "_tm_row"  # grows within a split
LABEL = "_tm_label"
FROM_BATCH = "_tm_from_batch"  # true for a row that the batch brought, false for one only the table has
TECHNICAL_COLUMNS = (FILE_ORDER, ROW_BLOCK, ROW_ORDER)

INCOMING = "incoming"
CURRENT = "current"


@dataclass(frozen=True)
class Append:
    """Add the rows."""


@dataclass(frozen=True)
class ReplaceTable:
    """The table becomes the rows."""


@dataclass(frozen=True)
class ReplaceSlices:
    """Rows whose `columns` occur in the batch are replaced by the batch."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class Merge:
    """Labelled rows are inserted, updated, deleted.

    `labels` is a query over `incoming` and `current`. It gives, for every row of the batch and every
    row of the table that must go, the written columns, LABEL and FROM_BATCH. `ties` gives keys whose
    last row is not decided by the declared order; None when no order is declared.
    """

    keys: tuple[str, ...]
    labels: exp.Query
    ties: exp.Query | None = None


Shape = Append | ReplaceTable | ReplaceSlices | Merge


@dataclass(frozen=True)
class AddColumn:
    column: Column


@dataclass(frozen=True)
class ChangeType:
    """Only ReplaceTable may change a type, since it rewrites every row."""

    name: str
    before: str
    after: str


SchemaChange = AddColumn | ChangeType


@dataclass(frozen=True)
class Plan:
    table: str
    settings: MergeSettings
    shape: Shape
    reason: str  # why this shape, in words
    columns: tuple[Column, ...]  # what is written, in the table's order, new columns last
    current: TableShape | None  # None: the load creates the table
    schema_changes: tuple[SchemaChange, ...] = ()
    max_delete_fraction: float | None = None  # None: no guard
    partition_by: tuple[str, ...] = ()  # for a table that the load creates
    table_properties: Mapping[str, str] = field(default_factory=dict)  # likewise
    warnings: tuple[str, ...] = ()

    @property
    def creates_table(self) -> bool:
        return self.current is None
