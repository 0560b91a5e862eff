"""A batch that is small enough comes to the driver in the job that reads and checks it.

A database gets its rows from the driver anyway. Keeping them in Spark first, to count them and to read them
again, took as long as reading and checking them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tallymark.checks.conform import IS_BAD, NO_CHANGE, POSITION, RECORD_ORDER, Conformed
from tallymark.model.batch import SourceFile
from tallymark.model.plan import TECHNICAL_COLUMNS
from tallymark.model.sql_text import quoted

MOST_BYTES = 64 << 20  # of files that are plain text; their rows need about as much
_PLAIN_TEXT = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
_PACKED = 16  # times as much may be in a file that is compressed
_BAD = "_tm_bad"


def fits_driver(files: Sequence[SourceFile]) -> bool:
    unpacked = (file.size * (1 if file.path.lower().endswith(_PLAIN_TEXT) else _PACKED) for file in files)
    return sum(unpacked) <= MOST_BYTES


def collect_good(conformed: Conformed) -> pa.Table | None:
    """The user's and the technical columns. None where rows are bad, or a record is not one row: such
    batches are kept in Spark, where the quarantine finds what it needs."""
    frame = conformed.frame
    if {NO_CHANGE, RECORD_ORDER, POSITION} & set(frame.columns):
        return None
    names = [quoted(column.name) for column in conformed.columns]
    rows = frame.selectExpr(*names, *TECHNICAL_COLUMNS, f"{IS_BAD} AS {_BAD}").toArrow()
    return None if pc.any(rows[_BAD]).as_py() else rows.drop_columns([_BAD])
