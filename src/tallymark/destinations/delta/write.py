"""How a labelled plan becomes one Delta commit that carries its marker and its fence.

1. Look again: if the table moved since the labels were computed (TableMoved), or holds a content of this
   batch (Fenced), write nothing.
2. Write the batch's tombstones, if it has any: they count only once the commit is there. If there is no table
   yet, note that one is begun: what a killed writer leaves is then not taken for somebody else's files.
3. Set marker (`userMetadata`) and fence (`txnAppId`, `txnVersion`) on the isolated session: whatever
   commits there carries them, and Delta itself drops a commit whose `txnVersion` is not above the last.
4. Write, in one statement, by the cheapest way that gives the labelled rows.
5. Find our commit in the log. It is there: done, and its own metrics must agree with the labels. It is not:
   a newer writer has taken over (Fenced). The log cannot be read: CommitUnknown, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tallymark.destinations.contract import Commit, DuplicatesFound, SampleRow, Way
from tallymark.destinations.delta.history import HistoryEntry
from tallymark.destinations.delta.write_methods import WAYS, Target, choose_way
from tallymark.destinations.lakehouse.gates import check_in_spark
from tallymark.destinations.lakehouse.home import begin_table
from tallymark.destinations.lakehouse.labels import Labelled, Repair
from tallymark.destinations.lakehouse.tombstones import DeltaTombstones
from tallymark.errors import CommitUnknown, DestinationError, Fenced, NotATable, TableMoved, TallymarkError
from tallymark.model.gate import Gate, GateResult
from tallymark.model.marker import Marker
from tallymark.model.receipt import Counts
from tallymark.spark.sql import condition, lost_connection, reason

TRANSACTION_APP = "tallymark"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"
_LOCATION_IN_USE = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_EVOLVE = "spark.databricks.delta.schema.autoMerge.enabled"


@dataclass(frozen=True)
class DeltaPrepared:
    labelled: Labelled
    target: Target

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
    def way(self) -> Way:
        return choose_way(self.labelled)

    def samples(self, limit: int) -> list[SampleRow]:
        return self.labelled.samples(limit)

    def sql(self) -> str:
        return self.labelled.sql()

    def check(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        return check_in_spark(self.labelled, gates)

    def commit(self, marker: Marker) -> Commit:
        plan = self.labelled.plan
        planned = -1 if plan.current is None else int(plan.current.version)
        latest = self.target.latest_version()
        if planned != (-1 if latest is None else latest):
            raise TableMoved(f"{plan.table}: another commit came in since the plan was made")
        self._refuse_held(marker)
        way = self.way.name
        if self.target.path is not None:
            self._remember_deletes(marker)
            if plan.current is None:
                self._note_begin(marker)
        with _marked_and_fenced(self.labelled.spark, marker):
            try:
                WAYS[way](self.labelled, self.target)
            except Exception as error:
                commit = self._settle_failed_write(error, marker, planned, way)
            else:
                commit = self._find_commit(marker, planned, way)
        if self.target.path is None:
            try:
                self._remember_deletes(marker)
            except TallymarkError as error:  # the rows are committed: the marker must tell, not this error
                raise CommitUnknown(error.message, hint=error.hint) from error
        return commit

    def _refuse_held(self, marker: Marker) -> None:
        """A late writer may have brought these contents under an older sequence since they were claimed.
        One that comes in after this look makes Delta refuse our commit, since both carry the same app id."""
        other = self.target.history().holding(marker.content_hashes)
        if other is not None:
            raise Fenced(
                f"{self.labelled.plan.table}: a content of this batch was applied by batch "
                f"{other.batch_id}; nothing was written",
                hint="run again: what is applied is not loaded twice",
            )

    def _remember_deletes(self, marker: Marker) -> None:
        if self.labelled.tombstones is None:
            return
        try:
            place = DeltaTombstones(self.labelled.spark, self.target.location())
            place.add(self.labelled.tombstones, marker)
        except Exception as error:
            raise write_error(f"{self.labelled.plan.table}: its tombstones", error) from error

    def _note_begin(self, marker: Marker) -> None:
        try:
            begin_table(self.labelled.spark, self.target.location(), marker.batch_id)
        except Exception as error:
            raise write_error(self.labelled.plan.table, error) from error

    def _find_commit(self, marker: Marker, planned: int, way: str) -> Commit:
        found = self._our_entry(marker, planned)
        if found is None:
            raise Fenced(
                f"{self.labelled.plan.table}: the commit of batch {marker.batch_id} was refused, since a "
                f"newer writer has used sequence {marker.sequence} or a later one",
                hint="run again: the batch is claimed anew",
            )
        disagreement = _disagreement(found, self.labelled, way) or _moved_meanwhile(found, planned, way)
        return Commit(str(found.version), found.committed_at, way, disagreement)

    def _settle_failed_write(self, error: Exception, marker: Marker, planned: int, way: str) -> Commit:
        """An error does not prove that nothing was committed: the log does."""
        table = self.labelled.plan.table
        if condition(error) == _LOCATION_IN_USE:
            raise _unknown_to_catalog(table, error) from error
        if lost_connection(error):
            raise CommitUnknown(f"{table}: the answer to the commit got lost: {reason(error)}") from error
        try:
            found = self._our_entry(marker, planned)
        except Exception as unreadable:
            raise CommitUnknown(f"{table}: {reason(error)}; nor can the log be read") from unreadable
        if found is not None:
            return self._find_commit(marker, planned, way)
        if condition(error).startswith("DELTA_CONCURRENT") or "Concurrent" in type(error).__name__:
            raise TableMoved(f"{table}: {reason(error)}") from error
        raise write_error(table, error) from error

    def _our_entry(self, marker: Marker, planned: int) -> HistoryEntry | None:
        history = self.target.history()
        history.read()
        entries = history.after(planned)
        ours = (e for e in entries if e.marker is not None and e.marker.batch_id == marker.batch_id)
        return next(ours, None)


def _unknown_to_catalog(table: str, error: Exception) -> NotATable:
    return NotATable(
        f"{table}: the catalog does not know it, but its folder is not empty: {reason(error)}",
        hint="nothing was written; if the folder holds a Delta table (_delta_log), make it known again: "
        f"CREATE TABLE {table} USING delta LOCATION '<folder>'; if a killed first load has left "
        "nothing but data files there, remove them; then run again",
    )


def write_error(table: str, error: Exception) -> TallymarkError:
    if isinstance(error, TallymarkError):
        return error
    text = reason(error)
    hint = "nothing was written; see the Spark log for the whole error"
    if "No space left" in str(error):
        hint = (
            "nothing was committed; free disk space for the table and Spark's scratch folder, then run again"
        )
    elif "Permission denied" in str(error):
        hint = "nothing was committed; make the table's folder writable for this user, then run again"
    return DestinationError(f"{table}: the write failed: {text}", hint=hint)


@contextmanager
def _marked_and_fenced(spark: SparkSession, marker: Marker) -> Iterator[None]:
    settings = {
        _USER_METADATA: marker.to_json(),
        _APP_ID: TRANSACTION_APP,
        _APP_VERSION: str(marker.sequence),
        _EVOLVE: "true",  # the plan has already decided which columns are new
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            with suppress(Exception):  # the session may be gone, and its settings with it
                spark.conf.unset(name)


def _disagreement(entry: HistoryEntry, labelled: Labelled, way: str) -> str:
    """What Delta counted in the commit against what the labels said; empty when they agree."""
    counts, metrics = labelled.counts, {k: int(v) for k, v in entry.metrics.items() if v.isdigit()}
    replaced = counts.updated + counts.closed
    if way == "merge":
        expected = _merge_metrics(counts, labelled.repair)
        seen = {name: metrics.get(name, 0) for name in expected}
    else:
        expected = {"rows written": counts.inserted + replaced}
        seen = {"rows written": metrics.get("numOutputRows", 0) - metrics.get("numCopiedRows", 0)}
        if way in ("replace rows", "replace slices") and labelled.plan.current is not None:
            expected["rows replaced"] = replaced + counts.deleted
            seen["rows replaced"] = metrics.get("numDeletedRows", 0)
    if seen == expected:
        return ""
    return f"Delta's commit {entry.version} counted {seen}, the plan said {expected}"


def _moved_meanwhile(entry: HistoryEntry, planned: int, way: str) -> str:
    """Between the last look and the write another writer, who takes no lease, can still come in."""
    if way == "append" or entry.read_version in (None, planned):
        return ""
    return f"Delta's commit {entry.version} met version {entry.read_version}, the plan was made on {planned}"


def _merge_metrics(counts: Counts, repair: Repair | None) -> dict[str, int]:
    """A match that occurred several times goes with all its rows, and comes back once unless deleted."""
    again = repair.found.keys - repair.deleted if repair is not None else 0
    anew = repair.updated if repair is not None else 0
    return {
        "numTargetRowsInserted": counts.inserted + again,
        "numTargetRowsUpdated": counts.updated + counts.closed - anew,
        "numTargetRowsDeleted": counts.deleted + again,
    }
