"""How labelled rows become one commit that carries its marker and its fence, on any table that Spark writes.

1. Check again: if the table moved since the labels were computed (TableMoved), or holds a content of this
   batch (Fenced), write nothing.
2. Write the batch's tombstones, if it has any: they count only once the commit is there. If there is no table
   yet, note that one is begun, so that what a killed writer leaves is not taken for somebody else's files.
3. Write, with marker and fence, in one atomic unit of the table format (`LakehouseTable.write`).
4. Find our commit in the table's own log. If it is there, its metrics must agree with the labels. If it is
   not, a newer writer has taken over (Fenced). If the log cannot be read: CommitUnknown, never a guess.
5. Make the commit durable, so that nothing that is recorded afterwards can outlive it.

From the beginning of phase 3 on, an error is CommitUnknown unless it proves that nothing was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tallymark.destinations.contract import Commit, DuplicatesFound, SampleRow, WriteMethod
from tallymark.destinations.declaration import Caution
from tallymark.destinations.lakehouse.gates import check_in_spark
from tallymark.destinations.lakehouse.home import Folder, note_first_load
from tallymark.destinations.lakehouse.labels import Labelled
from tallymark.destinations.lakehouse.tombstones import TombstoneStore
from tallymark.errors import CommitUnknown, DestinationError, Fenced, TableMoved, TallymarkError
from tallymark.model.gate import Gate, GateResult
from tallymark.model.receipt import Counts, Marker
from tallymark.spark.failures import lost_connection, reason


@dataclass(frozen=True)
class FoundCommit:
    """A commit of ours in the table's log."""

    version: str
    committed_at: datetime
    disagreement: str = ""  # between the commit and the plan; must be empty


class LakehouseTable(Protocol):
    """What the commit asks of a table format."""

    @property
    def home(self) -> Folder | None:
        """None for a table of a catalog before its first commit."""

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What the store of this table does not promise."""

    def latest_version(self) -> str | None:
        """None if there is no table."""

    def holder_of(self, content_hashes: Collection[str]) -> Marker | None:
        """A load that brought any of these contents and was not undone, among recent commits."""

    def write_methods(self, labelled: Labelled) -> tuple[WriteMethod, ...]:
        """The cheapest first."""

    def write(self, labelled: Labelled, method: WriteMethod, marker: Marker) -> None:
        """One atomic unit that carries marker and fence. The format drops it if the fence is too low."""

    def find_commit(self, labelled: Labelled, method: WriteMethod, marker: Marker) -> FoundCommit | None:
        """Reads the log again. None if our commit is not in it."""

    def make_durable(self, version: str) -> None:
        """Returns once this commit survives a power loss, or at once where the store itself sees to that."""

    def refusal(self, error: Exception) -> TallymarkError | None:
        """For an error that proves that nothing was written; None if the log has to tell."""

    def is_conflict(self, error: Exception) -> bool:
        """Whether the format refused the commit because another one came first."""


@dataclass(frozen=True)
class LakehouseLoad:
    """A prepared load (`contract.PreparedLoad`)."""

    labelled: Labelled
    table: LakehouseTable

    @property
    def counts(self) -> Counts:
        return self.labelled.counts

    @property
    def table_rows(self) -> int:
        return self.labelled.table_rows

    @property
    def duplicates(self) -> DuplicatesFound | None:
        return self.labelled.repair.found if self.labelled.repair is not None else None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(str, self.table.cautions))

    @property
    def method(self) -> WriteMethod:
        return self.table.write_methods(self.labelled)[0]

    def samples(self, limit: int) -> list[SampleRow]:
        return self.labelled.samples(limit)

    def sql(self) -> str:
        return self.labelled.sql()

    def check(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        return check_in_spark(self.labelled, gates)

    def commit(self, marker: Marker) -> Commit:
        plan = self.labelled.plan
        planned = None if plan.current is None else plan.current.version
        if self.table.latest_version() != planned:
            raise TableMoved(f"{plan.table}: another commit came in since the plan was made")
        self._refuse_held(marker)
        method = self.method
        has_home = self.table.home is not None
        if has_home:
            self._write_tombstones(marker)
            if plan.current is None:
                self._note_first_load(marker)
        try:
            self.table.write(self.labelled, method, marker)
        except Exception as error:
            commit = self._settle_failed_write(error, marker, method)
        else:
            commit = self._found(marker, method)
        with self._unknown_if("it is written, but"):
            if not has_home:
                self._write_tombstones(marker)
            self.table.make_durable(commit.version)
        return commit

    @contextmanager
    def _unknown_if(self, what: str) -> Iterator[None]:
        """The write may have succeeded, so an error says nothing about it: the marker will tell."""
        try:
            yield
        except Exception as error:
            why = error.message if isinstance(error, TallymarkError) else reason(error)
            raise CommitUnknown(
                f"{self.labelled.plan.table}: {what} {why}",
                hint="run again: the marker shows whether it was committed",
            ) from error

    def _refuse_held(self, marker: Marker) -> None:
        """A late writer may have brought these contents under an older sequence since they were claimed. One
        that comes in after this check makes the format refuse our commit by its fence."""
        other = self.table.holder_of(marker.content_hashes)
        if other is not None:
            raise Fenced(
                f"{self.labelled.plan.table}: a content of this batch was applied by batch "
                f"{other.batch_id}; nothing was written",
                hint="run again: what is applied is not loaded twice",
            )

    def _write_tombstones(self, marker: Marker) -> None:
        if self.labelled.tombstones is None or self.table.home is None:
            return
        try:
            TombstoneStore(self.labelled.spark, self.table.home).add(self.labelled.tombstones, marker)
        except Exception as error:
            raise write_error(f"{self.labelled.plan.table}: its tombstones", error) from error

    def _note_first_load(self, marker: Marker) -> None:
        assert self.table.home is not None  # noqa: S101
        try:
            note_first_load(self.labelled.spark, self.table.home, marker.batch_id)
        except Exception as error:
            raise write_error(self.labelled.plan.table, error) from error

    def _found(self, marker: Marker, method: WriteMethod) -> Commit:
        with self._unknown_if("the write is done, but its commit cannot be looked up:"):
            found = self.table.find_commit(self.labelled, method, marker)
        if found is None:
            raise Fenced(
                f"{self.labelled.plan.table}: the commit of batch {marker.batch_id} was refused, since a "
                f"newer writer has used sequence {marker.sequence} or a later one",
                hint="run again: the batch is claimed again",
            )
        return Commit(found.version, found.committed_at, method.name, found.disagreement)

    def _settle_failed_write(self, error: Exception, marker: Marker, method: WriteMethod) -> Commit:
        """An error does not prove that nothing was committed: the log does."""
        table = self.labelled.plan.table
        if refusal := self.table.refusal(error):
            raise refusal from error
        if lost_connection(error):
            raise CommitUnknown(f"{table}: the answer to the commit was lost: {reason(error)}") from error
        with self._unknown_if(f"{reason(error)}; its commit cannot be looked up either:"):
            found = self.table.find_commit(self.labelled, method, marker)
        if found is not None:
            return Commit(found.version, found.committed_at, method.name, found.disagreement)
        if self.table.is_conflict(error):
            raise TableMoved(f"{table}: {reason(error)}") from error
        raise write_error(table, error) from error


def write_error(table: str, error: Exception) -> TallymarkError:
    if isinstance(error, TallymarkError):
        return error
    hint = "nothing was written; see the Spark log for the whole error"
    if "No space left" in str(error):
        hint = (
            "nothing was committed; free disk space for the table and Spark's scratch folder, then run again"
        )
    elif "Permission denied" in str(error):
        hint = "nothing was committed; make the table's folder writable for this user, then run again"
    return DestinationError(f"{table}: the write failed: {reason(error)}", hint=hint)
