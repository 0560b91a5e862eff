"""A plan: the effect of a strategy on one table, as data. Building it writes nothing.

Strategies make it, destinations apply it, `explain` prints it: one plan, several readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sqlglot import exp

from tallymark.model.settings import MergeSettings
from tallymark.model.table import Column, TableShape


class Label(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    CLOSE = "close"  # a version in the table whose end changes
    DELETE = "delete"
    UNCHANGED = "unchanged"
    SKIP = "skip"  # a row of the batch that changes nothing
    CONFLICT = "conflict"  # a row of the batch that a refusal finds: nothing is written


# Columns that the flow adds to `incoming`, and the label query to its result.
FILE_ORDER = "_tm_file"  # position of the file in the batch
ROW_BLOCK = "_tm_block"  # offset of the split in the file
ROW_ORDER = "_tm_row"  # grows within a split
LABEL = "_tm_label"
FROM_BATCH = "_tm_from_batch"  # true for a row of the batch, false for a row that only the table has
POSITION = (Column(FILE_ORDER, "int"), Column(ROW_BLOCK, "bigint"), Column(ROW_ORDER, "bigint"))
TECHNICAL_COLUMNS = tuple(column.name for column in POSITION)

COPIES = "_tm_copies"  # in the result of `Duplicates.keys`: how many rows of the table have this key

# Relations that the queries of a plan read.
INCOMING = "incoming"  # the batch: `Plan.given`, already in those types, and TECHNICAL_COLUMNS
CURRENT = "current"  # the table, one row for each match; no rows when the load creates it
TOMBSTONES = "tombstones"  # `Tombstones.columns` of deletes that still count

# What a query of a plan leaves to the engine.
AS_OF = "as_of"  # placeholder: `Plan.as_of`, as a timestamp
ORDERED = "TM_ORDERED"  # function (value, type): the value, ordered as Spark orders that type
COMPARABLE = "TM_COMPARABLE"  # function (value, type): what to compare for a value that has no equality
RANK = "TM_RANK"  # function (rank, columns…): the rank, which is 1 if no rows of the batch share the columns


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
class Duplicates:
    """How to find and repair rows of the table that share their match: a merge cannot tell them apart."""

    keys: exp.Query  # over `current`: match columns and COPIES of what occurs several times
    survivors: exp.Query  # over `current`: one row for each match, chosen deterministically
    whole_table: bool  # search the whole table, because it is not known to have none
    repair: bool  # False: the load fails


@dataclass(frozen=True)
class Tombstones:
    """What the table keeps of deletes, so that a late change that is older than a delete has no effect."""

    columns: tuple[Column, ...]
    new: exp.Query  # over `incoming`: what this batch adds
    forget_before: datetime


@dataclass(frozen=True)
class Refusal:
    """A query that must find nothing: what it finds are the keys at fault, and the load fails."""

    found: exp.Query
    message: str  # follows "<table>: ", and is followed by the keys
    hint: str
    shows_as: Label | None = None  # it finds nothing if no row has this label
    among: tuple[str, ...] = ()  # nor if no two rows of the batch share these columns


@dataclass(frozen=True)
class Merge:
    """Labelled rows are inserted, updated, closed, deleted.

    `labels` gives one row for every row of the batch, and for every other row of the table that changes: the
    plan's columns (all of them, as they will be, or for a delete as they were), LABEL and FROM_BATCH. Rows to
    update, close or delete are found in the table by the `match` columns.
    """

    match: tuple[str, ...]
    labels: exp.Query
    duplicates: Duplicates
    refusals: tuple[Refusal, ...] = ()
    tombstones: Tombstones | None = None
    rebuilds: bool = False  # rows are labelled as if the table were empty; it becomes the inserted rows


Shape = Append | ReplaceTable | ReplaceSlices | Merge


@dataclass(frozen=True)
class AddColumn:
    column: Column


@dataclass(frozen=True)
class ChangeType:
    """Only in a plan that `replaces_table`: it rewrites every row."""

    name: str
    before: str
    after: str


SchemaChange = AddColumn | ChangeType


@dataclass(frozen=True)
class KeyRange:
    """Min and max of a key column in the batch, as literals of Spark SQL."""

    column: str
    low: str
    high: str


@dataclass(frozen=True)
class ReadFirst:
    """Columns of the table that decide most labels. A row that differs in `deciding` from all rows of the
    batch with its key has the same label whatever its other columns hold, except the key and `needed`: they
    need not be read, and may be NULL."""

    deciding: str
    needed: tuple[str, ...] = ()  # what the labels of all rows depend on


@dataclass(frozen=True)
class Hints:
    """What makes a merge faster and never different. A destination may ignore all of it."""

    batch_keys: tuple[str, ...] = ()  # queries read only table rows whose values of these occur in the batch
    key_ranges: tuple[KeyRange, ...] = ()  # where in the table such rows can be
    updated_row: str = ""  # the alias in `labels` of the table row that a row updates; empty: there is none
    full_join: exp.Query | None = None  # `labels` as one full join, for engines on which that is faster
    read_first: ReadFirst | None = None  # None: labels need whole rows


@dataclass(frozen=True)
class Plan:
    table: str
    settings: MergeSettings
    shape: Shape
    reason: str  # why this shape, for the user
    columns: tuple[Column, ...]  # what is written, in the table's order, then new columns
    given: tuple[Column, ...]  # what the batch has, under the table's names and in its types
    current: TableShape | None  # None: the load creates the table
    as_of: datetime  # the batch's own time; a retry has the same
    schema_changes: tuple[SchemaChange, ...] = ()
    max_delete_fraction: float | None = None  # None: no guard
    partition_by: tuple[str, ...] = ()  # for a table that the load creates
    table_properties: Mapping[str, str] = field(default_factory=dict)  # likewise
    hints: Hints = Hints()
    warnings: tuple[str, ...] = ()

    @property
    def creates_table(self) -> bool:
        return self.current is None

    @property
    def replaces_table(self) -> bool:
        """Whether no row of the table stays."""
        return isinstance(self.shape, ReplaceTable) or (isinstance(self.shape, Merge) and self.shape.rebuilds)

    @property
    def unique_by(self) -> tuple[str, ...]:
        """Columns that are unique in the table after the load; they go into the marker."""
        return self.shape.match if isinstance(self.shape, Merge) else ()
