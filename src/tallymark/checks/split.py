"""Good rows apart from bad ones, in one pass over the source, under the pipeline's limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.storagelevel import StorageLevel

from tallymark.checks.collect import collect_good
from tallymark.checks.conform import IS_BAD, NO_CHANGE, POSITION, PROBLEMS, RAW, RECORD_ORDER, Conformed
from tallymark.checks.ranges import KeySpread
from tallymark.config.pipeline import QuarantineConfig
from tallymark.errors import TooManyBadRows
from tallymark.model.batch import SourceFile
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER, KeyRange
from tallymark.model.report import BadRow
from tallymark.model.table import SOURCE_FILE

_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 100
_FIRST, _RECORDS, _BEFORE = "_tm_first", "_tm_records", "_tm_before"  # of a split


@dataclass(frozen=True)
class Checked:
    """Valid inside `split` only. `per_file` has the files with bad rows."""

    judged: DataFrame  # every record of the source
    good: DataFrame
    total: int
    rejected: int
    per_file: dict[int, tuple[int, int]]  # position of the file in the batch → (rows, bad rows)
    source: t.StructType
    key_ranges: tuple[KeyRange, ...] = ()
    collected: pa.Table | None = None  # all rows, where they were asked for and all are good

    @cached_property
    def bad(self) -> DataFrame:
        """Rows with POSITION, the 1-based place of the record in its file, beside PROBLEMS and RAW."""
        return _with_position(self.judged, list(self.per_file))


@contextmanager
def split(
    conformed: Conformed,
    limits: QuarantineConfig,
    files: Sequence[SourceFile],
    unique_key: Sequence[str] = (),
    *,
    collect: bool = False,
    keep: bool = True,
) -> Iterator[Checked]:
    """Raises TooManyBadRows. Every later step reads the rows that are persisted or collected here, so the
    source is read once, and what was counted is what is written. It is read again where rows that were to be
    collected are bad, and where they are not to be kept: then whoever calls knows that it stays the same."""
    rows = collect_good(conformed) if collect else None
    if rows is not None:
        good = conformed.frame.drop(PROBLEMS, RAW)
        yield Checked(conformed.frame, good, rows.num_rows, 0, {}, conformed.source, collected=rows)
        return
    frame = conformed.frame.persist(StorageLevel.MEMORY_AND_DISK) if keep else conformed.frame
    try:
        checked = _checked(frame, conformed.source, KeySpread.of(unique_key, conformed.columns))
        _check_limits(checked, limits, files)
        yield checked
    finally:
        if keep:
            frame.unpersist()


def bad_rows(checked: Checked, limit: int) -> list[BadRow]:
    """The first bad rows of the batch, in the order of its files."""
    return [
        BadRow(
            file=row[SOURCE_FILE] or "",
            row=row[POSITION],
            column=row["column"],
            reason=row["reason"],
            raw=row[RAW],
        )
        for row in _first_bad(checked, limit)
    ]


def _first_bad(checked: Checked, limit: int) -> list[Row]:
    if not checked.rejected:
        return []
    first = checked.bad.orderBy(FILE_ORDER, POSITION).limit(limit)
    return first.select(SOURCE_FILE, POSITION, F.inline(F.slice(PROBLEMS, 1, 1)), RAW).collect()


def _checked(frame: DataFrame, source: t.StructType, spread: KeySpread) -> Checked:
    rows = frame.filter(f"NOT {NO_CHANGE}") if NO_CHANGE in frame.columns else frame
    counted = ["count(*) AS `rows`", f"count_if({IS_BAD}) AS bad", *spread.aggregates()]
    groups = rows.groupBy(FILE_ORDER).agg(*map(F.expr, counted)).collect()
    counts = {row[FILE_ORDER]: (row["rows"], row["bad"]) for row in groups}
    rejected = sum(bad for _, bad in counts.values())
    kept = rows.filter(f"NOT ({IS_BAD})") if rejected else rows
    return Checked(
        judged=frame,
        good=kept.drop(PROBLEMS, RAW, POSITION, RECORD_ORDER, NO_CHANGE),
        total=sum(number for number, _ in counts.values()),
        rejected=rejected,
        per_file={file: pair for file, pair in counts.items() if pair[1]},
        source=source,
        key_ranges=spread.ranges(groups),
    )


def _with_position(frame: DataFrame, files: Sequence[int]) -> DataFrame:
    """Spark reads a large file in several splits and numbers the records within each; so a record's place
    in the file is its place in the split, after all records of the splits before."""
    names = frame.columns
    bad = frame.filter(IS_BAD)
    if NO_CHANGE in names:
        bad = bad.filter(f"NOT {NO_CHANGE}")
    if POSITION in names:
        return bad
    order, records = ROW_ORDER, F.count("*")
    if RECORD_ORDER in names:
        order, records = RECORD_ORDER, F.count_distinct(RECORD_ORDER)
    splits = (
        frame.filter(F.col(FILE_ORDER).isin(list(files)))
        .groupBy(FILE_ORDER, ROW_BLOCK)
        .agg(F.min(order).alias(_FIRST), records.alias(_RECORDS))
    )
    earlier = Window.partitionBy(FILE_ORDER).orderBy(ROW_BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    before = splits.select(
        FILE_ORDER,
        ROW_BLOCK,
        _FIRST,
        F.coalesce(F.sum(_RECORDS).over(earlier), F.lit(0)).alias(_BEFORE),
    )
    position = (F.col(_BEFORE) + F.col(order) - F.col(_FIRST) + 1).alias(POSITION)
    placed = bad.join(F.broadcast(before), [FILE_ORDER, ROW_BLOCK])
    return placed.select("*", position).drop(_BEFORE, _FIRST)


def _check_limits(checked: Checked, limits: QuarantineConfig, files: Sequence[SourceFile]) -> None:
    if not checked.rejected:
        return
    fraction = checked.rejected / checked.total
    too_many = checked.rejected > limits.max_rows
    if not too_many and fraction <= limits.max_fraction:
        return
    limit = f"max_rows {limits.max_rows}" if too_many else f"max_fraction {limits.max_fraction:g}"
    blamed = [
        files[file].path
        for file, (rows, bad) in sorted(checked.per_file.items())
        if bad / rows > limits.max_fraction and file < len(files)
    ]
    shown = _first_bad(checked, _SHOWN_ROWS)
    raise TooManyBadRows(
        f"{checked.rejected:,} of {checked.total:,} rows are bad ({fraction:.2%}), more than the limit "
        f"({limit}); nothing was written. The first:\n" + "\n".join(map(_line, shown)),
        hint="correct the file or its rules under `columns`, or raise `quarantine.max_fraction` "
        "and `quarantine.max_rows`",
        facts={
            "blamed": blamed,
            "total": checked.total,
            "rejected": checked.rejected,
            "limit": limit,
        },
    )


def _line(row: Row) -> str:
    value = "NULL" if row["value"] is None else repr(row["value"][:_SHOWN_CHARACTERS])
    where = f"{row[SOURCE_FILE]} row {row[POSITION]}" if row[SOURCE_FILE] else f"row {row[POSITION]}"
    return f"  {where}: {row['column'] + ': ' if row['column'] else ''}{row['reason']}: {value}"
