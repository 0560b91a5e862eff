"""The inputs of a transform, as Spark reads them in the versions of its pin; and its watermark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tallymark.checks.split import Checked
from tallymark.errors import ConfigError
from tallymark.flow.job import Job, Query
from tallymark.model.batch import Batch, Pin, QueryResult, Watermark
from tallymark.model.plan import TECHNICAL_COLUMNS
from tallymark.model.table import PROVENANCE_COLUMNS, SOURCE_FILE
from tallymark.model.types import quoted
from tallymark.sources.read_files import CORRUPT, read_files

_NOT_FOR_QUERIES = {*TECHNICAL_COLUMNS, CORRUPT, *(column.name for column in PROVENANCE_COLUMNS)}


@dataclass(frozen=True)
class Inputs:
    """Each is read once, when it is first asked for."""

    job: Job
    query: Query
    pin: Pin
    opened: ExitStack  # closed by whoever made it, after the commit
    frames: dict[str, DataFrame] = field(default_factory=dict)

    def table(self, name: str) -> DataFrame:
        if name not in self.pin.tables:
            raise _undeclared("ref", name)
        table, version = self.job.connections.input_table(name), self.pin.tables[name]
        return self._once(f"ref {name}", lambda: table.read(version, self.job.spark))

    def zone(self, name: str) -> DataFrame:
        if name not in self.pin.zones:
            raise _undeclared("landing_zone", name)
        key = f"landing_zone {name}"
        if key not in self.frames:
            self.frames[key] = self._read_zone(name)
        return self.frames[key]

    def this(self) -> DataFrame | None:
        """The pipeline's own table as it is before this load."""
        target = self.job.target
        version = target.input_version()
        if version is None:
            return None
        return self._once("this", lambda: target.read(version, self.job.spark))

    def _once(self, key: str, read: Callable[[], AbstractContextManager[DataFrame]]) -> DataFrame:
        if key not in self.frames:
            self.frames[key] = self.opened.enter_context(read())
        return self.frames[key]

    def _read_zone(self, name: str) -> DataFrame:
        """Rows that cannot be parsed stop the load when they are met: a query has no quarantine."""
        source = read_files(
            self.job.spark, self.query.zones[name], (), self.pin.zones[name], self.job.task.root
        )
        message = F.concat(F.col(SOURCE_FILE), F.lit(" holds a malformed record: "), F.col(CORRUPT))
        whole = source.frame.where(F.when(F.col(CORRUPT).isNull(), True).otherwise(F.raise_error(message)))
        return whole.drop(*_NOT_FOR_QUERIES)


def _undeclared(asked: str, name: str) -> ConfigError:
    return ConfigError(
        f"{asked}({name!r}) was asked for, but is not among the inputs that the file names",
        hint=f"call {asked} with a name in quotes, so that it is known before anything runs",
    )


def watermark_after(job: Job, batch: Batch, checked: Checked) -> Watermark | None:
    """The highest value of the watermark column that the table has taken in with this batch. Kept for
    transforms, whose queries go on from it."""
    name = job.task.settings.watermark_column
    if name is None or not isinstance(batch.contents, QueryResult):
        return None
    pin = batch.contents.pin
    rows = checked.good
    last = job.ledger.last_receipt(job.table_key)
    before = last.watermark if last is not None and not pin.refresh else None
    if pin.window is not None:  # what lies between it and the rest is still to come
        return before
    column = next((f for f in rows.schema.fields if f.name.casefold() == name.casefold()), None)
    if column is None:
        return before
    highest = rows.agg(F.max(rows[quoted(column.name)]).cast("string")).collect()[0][0]
    if highest is None:
        return before
    after = Watermark(highest, column.dataType.simpleString())
    if before is not None and before.type == after.type and before.value > after.value:  # type: ignore[operator]
        return before
    return after
