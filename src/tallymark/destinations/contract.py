"""What a destination must do. It applies plans; it knows no strategy.

The phases of one load, as the flow calls them:

1. `inspect`   the table's shape now, or None
2. `applied`   the markers of these contents, and the last sequence and fence
3. `prepare`   compute the labels and counts of a plan; nothing durable is written
   `check`     on what `prepare` gave: what quality gates find in the table as it would be; likewise
4. `commit`    on what `prepare` gave: effects, marker and fence in one atomic unit
5. `settle`    copy markers to where they survive log clean-up; idempotent, safe to skip

A table is also what other pipelines read:

1. `input_version`   names the content that the table has now
2. `relation`        gives that content to Spark and nothing newer: a retry reads the same rows again

Where a destination has views (`views`), a query can be kept in the place of a table:

1. `plan`   says it in the destination's own SQL, over tables of the same destination
2. `make`   makes or replaces the view, with marker and fence, in one atomic unit
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeGuard

from tallymark.destinations.declaration import Capabilities
from tallymark.errors import Fenced, Unsupported
from tallymark.model.gate import Gate, GateResult
from tallymark.model.marker import Applied, Marker
from tallymark.model.plan import AddColumn, Label, Plan
from tallymark.model.receipt import Counts, Receipt
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
    """Rows of the table that share their match: how many are too many, and some of their keys."""

    rows: int  # that go, so that one is left of each; counted as deleted
    keys: int
    sample: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Commit:
    """What the destination says it did."""

    version: str
    committed_at: datetime
    way: str  # how it was written, in words
    disagreement: str = ""  # where the destination's own metrics differ from the labels; must be empty


@dataclass(frozen=True)
class TableMarkers:
    """Markers found in a table: by content hash, those asked for; and the highest numbers of all."""

    by_hash: dict[str, Applied]
    last_sequence: int = 0  # of every load there ever was: the next one must be above
    last_fence: int = 0  # likewise
    held_sequence: int = 0  # of the loads that the table still holds: lower after it was restored


def gone_back(table: str) -> Fenced:
    return Fenced(
        f"{table}: was restored or made anew since it was claimed; nothing was written",
        hint="run again: what the table no longer holds is loaded first",
    )


@dataclass(frozen=True)
class Way:
    """How the effect gets into the table. All ways give the same rows and counts."""

    name: str
    why: str


class Prepared(Protocol):
    """The computed effect of a plan on a pinned version of the table."""

    @property
    def way(self) -> Way:
        """What `commit` would do now; its Commit names it too."""

    @property
    def counts(self) -> Counts:
        """`rejected` is 0. `total` is the number of rows given to `prepare`, counted by itself: it equals
        the number of labels FROM_BATCH, or nothing may be written."""

    @property
    def table_rows(self) -> int:
        """Rows in the table before the load; 0 when it is new. Used by the delete guard."""

    @property
    def duplicates(self) -> DuplicatesFound | None:
        """What the load repairs beside its own effect; None for a clean table."""

    def samples(self, limit: int) -> list[SampleRow]: ...

    def sql(self) -> str:
        """The query or statement that decides, in the destination's dialect."""

    def check(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        """What gates find in the table as it would be after the load, in their order. At most once, and
        before `commit`, which it leaves to say what is written. Raises ConfigError for a query that the
        destination cannot run."""

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


class Place(Protocol):
    """What a destination tells of a table without Spark."""

    def table_key(self, table: str) -> str:
        """The identity of the table for leases and ledger records: stable, no secrets."""

    def has_gone_back(self, table: str, last: Receipt) -> bool:
        """A cheap look, for a run with nothing new: whether the table no longer holds its last recorded
        load. False also when only a look with Spark could tell."""


class Destination(Place, Protocol):
    capabilities: Capabilities
    table_properties: Mapping[str, str]  # for tables that a load creates
    views: Views | None  # None: it has none

    def inspect(self, table: str) -> TableShape | None:
        """Raises NotATable when something else is in that place."""

    def applied(self, table: str, content_hashes: Collection[str] | None) -> TableMarkers:
        """None asks for all contents. An absent table has no markers and sequence 0. What this shows is what
        loads then build on: should the table go back afterwards, `prepare` for a commit raises Fenced."""

    def column_type(self, spark_type: str) -> str:
        """The type as which a column made for `spark_type` is found again by `inspect`. Raises Unsupported
        for what cannot be stored without loss."""

    def prepare(
        self, plan: Plan, incoming: DataFrame, *, rows: int | None = None, for_commit: bool = True
    ) -> AbstractContextManager[Prepared]:
        """`incoming` has the batch's columns in the types that the plan was built for, and the technical
        columns of `model.plan`; it is cached by the caller and may be read several times. `rows` is how many
        the caller has counted in it, if so; what is then counted of their effect must agree. `for_commit`
        may lock the table against other writers until the end; a plan that is only looked at does not."""

    def settle(self, table: str) -> None: ...

    def input_version(self, table: str) -> str | None:
        """A short text for the content of the table now; None when there is no such table. Another one after
        every load, and after foreign commits where the destination sees them. Needs Spark only where nothing
        else can look. A view is read as a whole for it. Raises NotATable for what has no rows to read."""

    def relation(self, table: str, version: str, spark: SparkSession) -> AbstractContextManager[DataFrame]:
        """The table at that version of `input_version`, in Spark's types, JSON as texts. The rows are read
        when the frame is used, so it is good only inside the context. Raises InputMoved when that version is
        no longer there: without `time_travel`, as soon as the table has another."""

    def check(self) -> None:
        """For `doctor`: raises a TallymarkError when the destination cannot be reached or written."""


class TakesArrow(Protocol):
    """A destination whose batches go through the driver."""

    def prepare_collected(
        self, plan: Plan, tables: Iterable[pa.Table], *, rows: int, for_commit: bool = True
    ) -> AbstractContextManager[Prepared]:
        """As `prepare`; the tables have the columns of `incoming` that the plan gives, in its types."""


def takes_arrow(destination: object) -> TypeGuard[TakesArrow]:
    return callable(getattr(destination, "prepare_collected", None))


def refuse_gaps(capabilities: Capabilities, plan: Plan) -> None:
    """Raises Unsupported. Pipelines of a project are checked with its configuration already; this is for the
    library, and for what only the plan knows: fallbacks, and columns that the table does not have."""
    adds_columns = any(isinstance(change, AddColumn) for change in plan.schema_changes)
    for key, gap in capabilities.gaps(plan.settings, adds_columns=adds_columns):
        raise Unsupported(f"{plan.table}: {gap.reason}", hint=gap.hint, facts={"setting": key})
