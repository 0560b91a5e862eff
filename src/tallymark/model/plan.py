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
    CLOSE = "close"  # a version in the table whose end moves
    DELETE = "delete"
    UNCHANGED = "unchanged"
    SKIP = "skip"  # a row of the batch that has no say
    CONFLICT = "conflict"  # a row of the batch that a refusal finds: nothing is written


# Columns that the flow puts beside the user's in `incoming`, and the label query in its result.
FILE_ORDER = "_tm_file"  # position of the file in the batch
ROW_BLOCK = "_tm_block"  # offset of the split in its file
ROW_ORDER = "_tm_row"  # grows within a split
LABEL = "_tm_label"
FROM_BATCH = "_tm_from_batch"  # true for a row that the batch brought, false for one only the table has
POSITION = (Column(FILE_ORDER, "int"), Column(ROW_BLOCK, "bigint"), Column(ROW_ORDER, "bigint"))
TECHNICAL_COLUMNS = tuple(column.name for column in POSITION)

COPIES = "_tm_copies"  # in the result of `Duplicates.keys`: how many rows of the table have this key

# Relations that the queries of a plan read.
INCOMING = "incoming"  # the batch: `Plan.given`, already in those types, and TECHNICAL_COLUMNS
CURRENT = "current"  # the table, one row for each match; no rows when the load creates it
TOMBSTONES = "tombstones"  # `Tombstones.columns` of deletes that still have a say

# What a query of a plan leaves to the engine that runs it.
AS_OF = "as_of"  # placeholder: `Plan.as_of`, as a timestamp
ORDERED = "TM_ORDERED"  # function (value, type): the value, ordered as Spark orders that type
COMPARABLE = "TM_COMPARABLE"  # function (value, type): something that has equality, of a value with a map
RANK = "TM_RANK"  # function (rank, columns…): the rank; it is 1 if no rows of the batch share the columns


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
    """How to find and repair rows of the table that share their match, which no merge could tell apart."""

    keys: exp.Query  # over `current`: match columns and COPIES of what occurs several times
    survivors: exp.Query  # over `current`: one row for each match, chosen deterministically
    whole_table: bool  # look everywhere, since nobody knows that the table is clean
    repair: bool  # False: refuse to load


@dataclass(frozen=True)
class Tombstones:
    """What is remembered of deletes, so that a late change older than them changes nothing."""

    columns: tuple[Column, ...]
    new: exp.Query  # over `incoming`: what this batch adds
    forget_before: datetime


@dataclass(frozen=True)
class Refusal:
    """A query that must find nothing. What it finds are the columns that name the offenders."""

    found: exp.Query
    message: str  # completes "<table>: …", followed by the offenders
    hint: str
    shows_as: Label | None = None  # finds nothing where no row has this label
    among: tuple[str, ...] = ()  # nor where no two rows of the batch share these columns


@dataclass(frozen=True)
class Glance:
    """Columns of the table that are often enough to see. A row of it that differs in `telling` from all rows
    of the batch with its key is labelled the same whatever is in columns other than these and the key: they
    may then be NULL, and need not be read."""

    telling: str
    beside: tuple[str, ...] = ()  # what labels look at in every row


@dataclass(frozen=True)
class Merge:
    """Labelled rows are inserted, updated, closed, deleted.

    `labels` gives, for every row of the batch and every row of the table that changes without one, the
    plan's columns (a whole row: as it will be, or for a delete as it was), LABEL and FROM_BATCH.
    Rows to update, close or delete are found in the table by the `match` columns.
    """

    match: tuple[str, ...]
    labels: exp.Query
    duplicates: Duplicates
    refusals: tuple[Refusal, ...] = ()
    tombstones: Tombstones | None = None
    updated: str = ""  # what `labels` calls the row of the table that a row of it updates; empty: no one row
    within: tuple[str, ...] = ()  # of the table, the queries look only at rows that equal the batch in these
    glance: Glance | None = None  # None: labels need whole rows
    full_join: exp.Query | None = None  # `labels` by one join both ways, for engines that are fast at it
    anew: bool = False  # labelled as though the table were empty, which becomes the inserted rows


Shape = Append | ReplaceTable | ReplaceSlices | Merge


@dataclass(frozen=True)
class AddColumn:
    column: Column


@dataclass(frozen=True)
class ChangeType:
    """Only of a plan that `replaces_table`: it rewrites every row."""

    name: str
    before: str
    after: str


SchemaChange = AddColumn | ChangeType


@dataclass(frozen=True)
class KeyRange:
    """Between what the batch's values of a key column lie, as literals of Spark SQL."""

    column: str
    low: str
    high: str


@dataclass(frozen=True)
class Plan:
    table: str
    settings: MergeSettings
    shape: Shape
    reason: str  # why this shape, in words
    columns: tuple[Column, ...]  # what is written, in the table's order, new columns last
    given: tuple[Column, ...]  # what the batch brings, under the table's names and in its types
    current: TableShape | None  # None: the load creates the table
    as_of: datetime  # the batch's own time; a retry has the same
    schema_changes: tuple[SchemaChange, ...] = ()
    max_delete_fraction: float | None = None  # None: no guard
    partition_by: tuple[str, ...] = ()  # for a table that the load creates
    table_properties: Mapping[str, str] = field(default_factory=dict)  # likewise
    key_ranges: tuple[KeyRange, ...] = ()  # where in the table rows of the batch's keys can be
    warnings: tuple[str, ...] = ()

    @property
    def creates_table(self) -> bool:
        return self.current is None

    @property
    def replaces_table(self) -> bool:
        """Whether no row that the table had before is left."""
        return isinstance(self.shape, ReplaceTable) or (isinstance(self.shape, Merge) and self.shape.anew)

    @property
    def unique_by(self) -> tuple[str, ...]:
        """Columns that are certain to be unique in the table after the load; goes into the marker."""
        return self.shape.match if isinstance(self.shape, Merge) else ()
