"""Good rows apart from bad ones, in one pass over the source, under the pipeline's limits.

1. collect     a batch that is small enough comes to the driver in the job that reads and checks it: a
               database gets its rows from the driver anyway, and keeping them in Spark first took as long as
               reading and checking them
2. count       otherwise rows are persisted, and counted per file, with min and max of each key column
3. limits      too many bad rows stop the batch
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.storagelevel import StorageLevel

from tallymark.checks.conform import IS_BAD, NO_CHANGE, POSITION, PROBLEMS, RAW, RECORD_ORDER, Conformed
from tallymark.config.pipeline_file import QuarantineConfig
from tallymark.errors import TooManyBadRows
from tallymark.model.batch import Content, SourceFile
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER, TECHNICAL_COLUMNS, KeyRange
from tallymark.model.report import BadRow
from tallymark.model.table import SOURCE_FILE, Column, find_column
from tallymark.model.types import literal, quoted

_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 100
_FIRST, _RECORDS, _BEFORE = "_tm_first", "_tm_records", "_tm_before"  # of a split
MOST_BYTES = 64 << 20  # of plain text in a batch that is collected; its rows take about as much memory
_PLAIN_TEXT = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
_COMPRESSION = 16  # a compressed file may hold so many times its size
_BAD = "_tm_bad"
_LONGEST_RANGE = 200  # characters
_LARGEST = (1 << 63) - 1
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Checked:
    """What is known of a batch after its rows are checked. Valid only inside `split`."""

    judged: DataFrame  # every record of the source
    good: DataFrame
    total: int
    rejected: int
    per_file: dict[int, tuple[int, int]]  # of files with bad rows: position in the batch → (rows, bad rows)
    source: t.StructType
    key_ranges: tuple[KeyRange, ...] = ()
    collected: pa.Table | None = None  # all rows, if they were asked for and all are good

    @cached_property
    def bad(self) -> DataFrame:
        """Rows with PROBLEMS, RAW and POSITION, the number of the record in its file, counted from 1."""
        return _with_position(self.judged, list(self.per_file))


@contextmanager
def split(
    conformed: Conformed,
    limits: QuarantineConfig,
    contents: Sequence[Content],
    unique_key: Sequence[str] = (),
    *,
    collect: bool = False,
    keep: bool = True,
) -> Iterator[Checked]:
    """Raises TooManyBadRows. Later steps read the rows that are persisted or collected here, so that the
    source is read once, and what was counted is what is written. The source is read twice if rows are bad
    that were to be collected, and if `keep` is False: then the caller guarantees that the source stays the
    same."""
    rows = collect_good(conformed) if collect else None
    if rows is not None:
        good = conformed.frame.drop(PROBLEMS, RAW)
        yield Checked(conformed.frame, good, rows.num_rows, 0, {}, conformed.source, collected=rows)
        return
    frame = conformed.frame.persist(StorageLevel.MEMORY_AND_DISK) if keep else conformed.frame
    try:
        checked = _checked(frame, conformed.source, KeySpread.of(unique_key, conformed.columns))
        _check_limits(checked, limits, contents)
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
    """Spark reads a large file in several splits and numbers the records of each. So the position in the file
    is the position in the split plus the records of all splits before it."""
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


def _check_limits(checked: Checked, limits: QuarantineConfig, contents: Sequence[Content]) -> None:
    if not checked.rejected:
        return
    fraction = checked.rejected / checked.total
    too_many = checked.rejected > limits.max_rows
    if not too_many and fraction <= limits.max_fraction:
        return
    limit = f"max_rows {limits.max_rows}" if too_many else f"max_fraction {limits.max_fraction:g}"
    blamed = [
        contents[file].name
        for file, (rows, bad) in sorted(checked.per_file.items())
        if bad / rows > limits.max_fraction and file < len(contents)
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


def fits_driver(files: Sequence[SourceFile]) -> bool:
    """Whether the rows of these files are sure to fit into the driver's memory."""
    plain = [file.path.lower().endswith(_PLAIN_TEXT) for file in files]
    sizes = [file.size * (1 if text else _COMPRESSION) for file, text in zip(files, plain, strict=True)]
    return sum(sizes) <= MOST_BYTES


def collect_good(conformed: Conformed) -> pa.Table | None:
    """The user's columns and the technical ones. None if a row is bad or a record is not one row: such a
    batch is kept in Spark, where the quarantine reads it."""
    frame = conformed.frame
    if {NO_CHANGE, RECORD_ORDER, POSITION} & set(frame.columns):
        return None
    names = [quoted(column.name) for column in conformed.columns]
    rows = frame.selectExpr(*names, *TECHNICAL_COLUMNS, f"{IS_BAD} AS {_BAD}").toArrow()
    return None if pc.any(rows[_BAD]).as_py() else rows.drop_columns([_BAD])


@dataclass(frozen=True)
class _KeyType:
    """Dates and timestamps come to Python as numbers: its own types have a smaller range, and time zones."""

    number: str  # the value as a number or text that Python compares like Spark
    literal: Callable[[Any], str]


_KEY_TYPES = {
    **dict.fromkeys(_WHOLE_NUMBERS, _KeyType("{}", lambda number: f"{number}L")),
    "date": _KeyType("unix_date({})", lambda days: f"date_from_unix_date({days})"),
    "timestamp": _KeyType("unix_micros({})", lambda micros: f"timestamp_micros({micros})"),
    "string": _KeyType("{}", literal),
}


@dataclass(frozen=True)
class KeySpread:
    """Min and max of each key column, computed while rows are counted; only of types that Spark, Delta and
    Python order alike."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, keys: Iterable[str], columns: Sequence[Column]) -> KeySpread:
        found = (find_column(columns, key) for key in keys)
        return cls(tuple(column for column in found if column is not None and column.type in _KEY_TYPES))

    def aggregates(self) -> list[str]:
        numbers = [_KEY_TYPES[column.type].number for column in self.columns]
        names = [quoted(column.name) for column in self.columns]
        return [
            f"{text.format(f'{function}({name})')} AS _tm_{function}_{at}"
            for at, (text, name) in enumerate(zip(numbers, names, strict=True))
            for function in ("min", "max")
        ]

    def ranges(self, groups: Sequence[Row]) -> tuple[KeyRange, ...]:
        found = []
        for at, column in enumerate(self.columns):
            lows = [row[f"_tm_min_{at}"] for row in groups if row[f"_tm_min_{at}"] is not None]
            highs = [row[f"_tm_max_{at}"] for row in groups if row[f"_tm_max_{at}"] is not None]
            if not lows or len(str(min(lows))) + len(str(max(highs))) > _LONGEST_RANGE:
                continue
            low, high = min(lows), max(highs)
            if column.type in _WHOLE_NUMBERS:
                low, high = _rounded(low, high)
            as_literal = _KEY_TYPES[column.type].literal
            found.append(KeyRange(column.name, as_literal(low), as_literal(high)))
        return tuple(found)


def _rounded(low: int, high: int) -> tuple[int, int]:
    """Wider by at most an eighth on each side. Spark writes numbers into the code that it compiles for a
    query: with the exact bounds, every load would compile a new one."""
    step = 1 << max(0, (high - low).bit_length() - 4)
    return low // step * step, min(-(-high // step) * step, _LARGEST)
