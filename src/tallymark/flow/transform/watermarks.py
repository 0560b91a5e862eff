"""How far a transform has come: kept with the marker of each load, in the same commit."""

from __future__ import annotations

from pyspark.sql import functions as F

from tallymark.checks.split import Checked
from tallymark.flow.job import Job
from tallymark.model.batch import Batch, QueryResult
from tallymark.model.sql_text import quoted
from tallymark.model.transform import Watermark


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
