"""What a destination promises. It applies plans; it knows no strategy.

`Destination.table(name)` gives a `TargetTable`, which owns what is known of one table. One load calls, in
order:

1. `shape`     columns and version of the table now, or None
2. `markers`   the markers of these contents, and the highest sequence and fence
3. `prepare`   computes labels and counts of a plan; writes nothing durable
   `check`     on the prepared load: what quality gates find in the table as it would be
4. `commit`    on the prepared load: effects, marker and fence in one atomic unit
5. `settle`    copies markers to where they survive log clean-up; idempotent, safe to skip

A table is also what other pipelines read:

1. `input_version`   names the content that the table has now
2. `read`            gives that content to Spark and nothing newer: a retry reads the same rows again

Where a destination has `views`, a query can take the place of a table:

1. `plan`   translates it to the destination's own SQL, over tables of the same destination
2. `make`   creates or replaces the view, with marker and fence, in one atomic unit

The guide to writing one: docs/how-to/add-a-destination.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from tallymark.destinations.declaration import Capabilities
from tallymark.errors import Fenced, Unsupported
from tallymark.model.gate import Gate, GateResult
from tallymark.model.plan import AddColumn, Label, Plan
from tallymark.model.receipt import Applied, Counts, Marker, Receipt
from tallymark.model.table import TableShape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SampleRow:
    """One row of a plan. `before` is None for an insert, `after` for a delete."""

    label: Label
    before: dict[str, object] | None
    after: dict[str, object] | None


@dataclass(frozen=True)
class DuplicatesFound:
    """Rows of the table that share their match columns: how many are surplus, and a sample of their keys."""

    rows: int  # that are removed, so that one is left of each; counted as deleted
    keys: int
    sample: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Commit:
    """What the destination reports of the commit."""

    version: str
    committed_at: datetime
    method: str  # how it was written, in words
    disagreement: str = ""  # where the destination's own metrics differ from the labels; must be empty


@dataclass(frozen=True)
class UnmarkedLoad:
    """The last load of a table whose marker is gone: it was cleaned up before it was copied. The fence still
    shows that its sequence was used; which contents it had, only the ledger knows."""

    sequence: int
    version: str
    committed_at: datetime


@dataclass(frozen=True)
class TableMarkers:
    """The markers that were asked for, by content hash, and the highest numbers of the whole table."""

    by_hash: dict[str, Applied]
    last_sequence: int = 0  # of every load there ever was: the next one must be above
    last_fence: int = 0  # likewise
    held_sequence: int = 0  # of the loads that the table still holds: lower after a restore or a power loss
    unmarked: UnmarkedLoad | None = None


def rolled_back(table: str) -> Fenced:
    return Fenced(
        f"{table}: the table was restored or recreated after it was claimed; nothing was written",
        hint="run again: what the table no longer holds is loaded first",
    )


@dataclass(frozen=True)
class WriteMethod:
    """How the effect gets into the table. All methods give the same rows and counts."""

    name: str
    why: str


@dataclass(frozen=True)
class SparkRows:
    """The rows of a batch as a DataFrame: the batch's columns in the types that the plan was built for, and
    the technical columns of `model.plan`. It is cached by the caller and may be read several times."""

    frame: DataFrame
    count: int | None = None  # None if nobody has counted them yet


@dataclass(frozen=True)
class ArrowRows:
    """The same rows, already on the driver: only for destinations with the capability `takes_arrow`."""

    tables: Iterable[pa.Table]  # read once; with the columns that the plan gives, in its types
    count: int


Incoming = SparkRows | ArrowRows


class PreparedLoad(Protocol):
    """The computed effect of a plan on a pinned version of the table."""

    @property
    def method(self) -> WriteMethod:
        """What `commit` would do now; its Commit names it too."""

    @property
    def counts(self) -> Counts:
        """`rejected` is 0. `total` is the number of rows given to `prepare`, counted independently: it equals
        the number of labels FROM_BATCH, or nothing is written."""

    @property
    def table_rows(self) -> int:
        """Rows in the table before the load; 0 if it is new. Used by the delete guard."""

    @property
    def duplicates(self) -> DuplicatesFound | None:
        """What the load repairs in addition to its own effect; None for a clean table."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What users must know of this table, beside what the plan says: shown with plans and loads."""

    def samples(self, limit: int) -> list[SampleRow]: ...

    def sql(self) -> str:
        """The query that computes the labels, in the destination's dialect."""

    def check(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        """What the gates find in the table as it would be after the load, in their order. Called at most
        once, before `commit`; what it writes is durable only with the commit. Raises ConfigError for a query
        that the destination cannot run."""

    def commit(self, marker: Marker) -> Commit:
        """Raises TableMoved (plan again), Fenced (stop), CommitUnknown (ask `applied`)."""


@dataclass(frozen=True)
class ViewQuery:
    """A SELECT in Spark SQL that reads nothing but the keys of `tables`."""

    sql: str
    tables: Mapping[str, str]  # relation in the query → table of the same destination
    file: str  # where it was written, for messages


@dataclass(frozen=True)
class ViewPlan:
    table: str
    query: ViewQuery
    place: str  # the table's name as the destination writes it
    sql: str = ""  # the query in the destination's SQL; empty while something is missing
    missing: tuple[str, ...] = ()  # relations of the query whose tables are not there yet
    replaces: bool = False  # a view that Tallymark made earlier

    @property
    def statement(self) -> str:
        """For people: some destinations need more than one."""
        return f"CREATE {'OR REPLACE ' if self.replaces else ''}VIEW {self.place} AS\n{self.sql}"


class Views(Protocol):
    def plan(self, table: str, query: ViewQuery) -> ViewPlan:
        """Raises Unsupported for what the destination would answer otherwise than Spark, and NotATable when
        a table, or a view that somebody else made or changed, is in that place."""

    def make(self, plan: ViewPlan, marker: Marker) -> Commit:
        """Raises TableMoved (plan again), Fenced (stop), CommitUnknown (ask `applied`)."""


class TableLocator(Protocol):
    """What a destination knows of its tables without Spark: enough for a run that finds nothing new."""

    def key(self, table: str) -> str:
        """The identity of the table for leases and ledger records: stable, no secrets."""

    def was_rolled_back(self, table: str, last: Receipt) -> bool:
        """A cheap check whether the table no longer holds its last recorded load. False also where only Spark
        could tell."""


class TargetTable(Protocol):
    """One table, and everything that is known of it. A load keeps one for its whole life."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str:
        """As `TableLocator.key`."""

    def was_rolled_back(self, last: Receipt) -> bool:
        """As `TableLocator.was_rolled_back`."""

    def shape(self) -> TableShape | None:
        """None if there is no table. Raises NotATable when something else is in its place."""

    def markers(self, content_hashes: Collection[str] | None) -> TableMarkers:
        """None asks for all contents. An absent table has no markers and sequence 0. Loads build on what this
        returns: if the table is rolled back afterwards, `prepare` for a commit raises Fenced."""

    def prepare(
        self, plan: Plan, incoming: Incoming, *, for_commit: bool = True
    ) -> AbstractContextManager[PreparedLoad]:
        """`for_commit` may lock the table against other writers until the end; a plan that is only shown does
        not. raises CountsDoNotBalance when fewer or more rows are labelled than came in."""

    def settle(self) -> None: ...

    def input_version(self) -> str | None:
        """A short text for the content of the table now; None if there is no table. It changes with every
        load, and with foreign commits where the destination sees them. Needs Spark only where nothing else
        can tell. For a view, the whole view is read. Raises NotATable for what has no rows to read."""

    def read(self, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        """The table at that `input_version`, in Spark's types, JSON as text. The rows are read when the frame
        is used, so it is valid only inside the context. Raises InputMoved when that version is no longer
        available: without `time_travel`, as soon as the table has another."""


class Destination(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def table_properties(self) -> Mapping[str, str]:
        """For tables that a load creates."""

    @property
    def views(self) -> Views | None:
        """None if it has none."""

    def table(self, name: str) -> TargetTable: ...

    def column_type(self, spark_type: str) -> str:
        """The type that `TargetTable.shape` reports for a column created for `spark_type`. Raises Unsupported
        for what cannot be stored without loss."""

    def check(self) -> None:
        """For `doctor`: raises a TallymarkError when the destination cannot be reached or written."""


def refuse_gaps(capabilities: Capabilities, plan: Plan) -> None:
    """Raises Unsupported. Pipelines of a project are checked with its configuration already; this is for the
    library, and for what only the plan knows: fallbacks, and columns that the table does not have."""
    adds_columns = any(isinstance(change, AddColumn) for change in plan.schema_changes)
    for key, gap in capabilities.gaps(plan.settings, adds_columns=adds_columns):
        raise Unsupported(f"{plan.table}: {gap.reason}", hint=gap.hint, facts={"setting": key})
