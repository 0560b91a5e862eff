"""Reads the quarantine of a local folder without Spark.

The quarantine of a pipeline is a Delta table that checks/quarantine.py writes. It uses little of the Delta
protocol: commits, checkpoints in one file, and deletes that rewrite files. A log that uses more, such as
deletion vectors, raises `NeedsSpark`, and so does a file that cannot be read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs, parquet

from tallymark.model.batch import Attempt
from tallymark.model.report import QuarantinedRow, QuarantineSummary

TEXT, WHOLE = pa.string(), pa.int64()
# The columns that are read here. The table has more, for replays.
COLUMNS = pa.schema(
    {
        "id": TEXT,
        "pipeline": TEXT,
        "batch_id": TEXT,
        "fence": WHOLE,
        "file": TEXT,
        "file_order": WHOLE,
        "row": WHOLE,
        "column": TEXT,
        "reason": TEXT,
        "raw": TEXT,
        "quarantined_at": pa.timestamp("us", tz="UTC"),
    }
)
OF_ROWS = ["id", "pipeline", "batch_id", "file", "row", "column", "reason", "raw", "quarantined_at"]
OF_ATTEMPTS = ["batch_id", "fence"]
OF_SUMMARIES = ["batch_id", "file", "reason", "quarantined_at"]
ORDER = ["quarantined_at", "batch_id", "file_order", "row"]

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_UNPUBLISHED_COMMITS = ("_staged_commits", "_commits")  # folders of commits that only a catalog can order
_NO_FENCE = -(1 << 63)  # stands for null, which compares with nothing
_PLAIN_READER = 1  # the version of the protocol that has no deletion vectors and no column mapping


class NeedsSpark(Exception):
    """The quarantine cannot be read without Spark. The text says why."""


@dataclass(frozen=True)
class BadRowGroup:
    """How many rows of one file a batch rejected for one reason. Several groups may be about the same."""

    batch_id: str
    file: str
    reason: str
    rows: int
    quarantined_at: datetime


class QuarantineReader(Protocol):
    """Reads the rows of the attempts that it is told: the ledger knows which of them count."""

    def pipelines(self) -> list[str]:
        """Those that have a table in the quarantine, empty or not."""
        ...

    def attempts(self, pipeline: str) -> set[Attempt]:
        """Those that have rows, whether their batches were committed or not."""
        ...

    def summaries(self, pipeline: str, attempts: Collection[Attempt]) -> list[QuarantineSummary]:
        """One per batch."""
        ...

    def rows(self, pipeline: str, attempts: Collection[Attempt], *, limit: int = 100) -> list[QuarantinedRow]:
        """The oldest rows first; those of a batch in the order in which it read them."""
        ...


class QuarantineFiles:
    """A `QuarantineReader` that reads files. Its methods raise NeedsSpark."""

    def __init__(self, *roots: str) -> None:
        self._roots = tuple(_local_folder(root) for root in roots)

    def attempts(self, pipeline: str) -> set[Attempt]:
        with _left_to_spark(self._roots[0] / pipeline):
            table = self._table(pipeline)
            if table is None:
                return set()
            parts = map(pa.Table.from_batches, ([part] for part in table.to_batches(columns=OF_ATTEMPTS)))
            found = (each for part in parts for each in part.group_by(OF_ATTEMPTS).aggregate([]).to_pylist())
            return {Attempt(each["batch_id"], each["fence"]) for each in found}

    def rows(self, pipeline: str, attempts: Collection[Attempt], *, limit: int = 100) -> list[QuarantinedRow]:
        with _left_to_spark(self._roots[0] / pipeline):
            table = self._table(pipeline)
            if table is None:
                return []
            wanted = _of(attempts)
            # The order is decided on narrow columns, so that only the chosen rows are in memory as a whole.
            order = table.to_table(columns=ORDER, filter=wanted)
            placed = order.set_column(ORDER.index("row"), "row", pc.fill_null(order["row"], 0))
            chosen = pc.sort_indices(placed, sort_keys=[(name, "ascending") for name in ORDER])[:limit]
            found = table.take(chosen, columns=OF_ROWS, filter=wanted)
            return [QuarantinedRow(**row) for row in found.to_pylist()]

    def summaries(self, pipeline: str, attempts: Collection[Attempt]) -> list[QuarantineSummary]:
        with _left_to_spark(self._roots[0] / pipeline):
            table = self._table(pipeline)
            if table is None:
                return []
            batches = table.to_batches(columns=OF_SUMMARIES, filter=_of(attempts))
            parts = map(pa.Table.from_batches, ([part] for part in batches))
            return summaries_of(pipeline, (group for part in parts for group in _groups(part)))

    def pipelines(self) -> list[str]:
        with _left_to_spark(self._roots[0]):
            folders = [entry for root in self._roots if root.is_dir() for entry in root.iterdir()]
            return sorted({folder.name for folder in folders if (folder / "_delta_log").is_dir()})

    def _table(self, pipeline: str) -> ds.Dataset | None:
        """Of all roots."""
        files: list[str] = []
        for folder in (root / pipeline for root in self._roots):
            files += [str(folder / file) for file in _live_files(folder) or ()]
        if not files:
            return None
        # Sessions that others start may write timestamps as INT96.
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        return ds.dataset(
            files,
            schema=COLUMNS,
            format=ds.ParquetFileFormat(read_options=options),
            filesystem=fs.LocalFileSystem(),
        )


def _of(attempts: Collection[Attempt]) -> pc.Expression:
    fence = pc.coalesce(pc.field("fence"), pc.scalar(pa.scalar(_NO_FENCE, WHOLE)))
    by_fence: dict[int, list[str]] = {}
    for attempt in attempts:
        number = _NO_FENCE if attempt.fence is None else attempt.fence
        by_fence.setdefault(number, []).append(attempt.batch_id)
    wanted = pc.scalar(False)
    for number, batch_ids in by_fence.items():
        wanted = wanted | ((fence == number) & pc.field("batch_id").isin(batch_ids))
    return wanted


def summaries_of(pipeline: str, groups: Iterable[BadRowGroup]) -> list[QuarantineSummary]:
    """Oldest batch first, most frequent reason first."""
    batches: dict[str, list[BadRowGroup]] = {}
    for group in groups:
        batches.setdefault(group.batch_id, []).append(group)
    summaries = [
        QuarantineSummary(
            pipeline=pipeline,
            batch_id=batch_id,
            rows=sum(group.rows for group in found),
            files=len({group.file for group in found}),
            reasons=_reasons(found),
            quarantined_at=min(group.quarantined_at for group in found),
        )
        for batch_id, found in batches.items()
    ]
    return sorted(summaries, key=lambda summary: (summary.quarantined_at, summary.batch_id))


def _reasons(groups: Iterable[BadRowGroup]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.reason] += group.rows
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _groups(found: pa.Table) -> Iterator[BadRowGroup]:
    grouped = found.group_by(["batch_id", "file", "reason"])
    for each in grouped.aggregate([([], "count_all"), ("quarantined_at", "min")]).to_pylist():
        yield BadRowGroup(
            each["batch_id"], each["file"], each["reason"], each["count_all"], each["quarantined_at_min"]
        )


def _live_files(folder: Path) -> list[str] | None:
    """The files of the current version of a Delta table, relative to its folder. None if there is no table.

    1. List the log. Without a commit or a checkpoint there is no table.
    2. Start at the newest checkpoint, else at the first commit.
    3. Apply the actions of every later commit.
    4. Refuse a table that a plain reader must not read.
    """
    log = folder / "_delta_log"
    if not log.is_dir():
        return None
    names = sorted(entry.name for entry in log.iterdir())
    commits = [int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))]
    checkpoints = [int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    if not commits and not checkpoints:
        return None
    start = max(checkpoints, default=-1)
    later = [version for version in commits if version > start]
    if later != list(range(start + 1, start + 1 + len(later))):
        raise NeedsSpark("commits are missing in its log")
    if any(name in names and any((log / name).iterdir()) for name in _UNPUBLISHED_COMMITS):
        raise NeedsSpark("it has commits outside its log")
    live: dict[str, None] = {}
    protocol: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for action in _actions(log, start, later):
        if added := action.get("add"):
            live[added["path"]] = None
        elif removed := action.get("remove"):
            live.pop(removed["path"], None)
        protocol = action.get("protocol") or protocol
        metadata = action.get("metaData") or metadata
    if protocol["minReaderVersion"] != _PLAIN_READER or metadata["partitionColumns"]:
        raise NeedsSpark("it uses features of Delta that only Spark can read")
    return [unquote(path) for path in live]


def _actions(log: Path, checkpoint: int, commits: Iterable[int]) -> Iterator[dict[str, Any]]:
    if checkpoint >= 0:
        kinds = ["add", "protocol", "metaData"]  # a checkpoint's `remove` is for VACUUM
        yield from parquet.read_table(log / f"{checkpoint:020}.checkpoint.parquet", columns=kinds).to_pylist()
    for version in commits:
        for line in (log / f"{version:020}.json").read_text("utf-8").splitlines():
            yield json.loads(line)


def _local_folder(root: str) -> Path:
    address = urlsplit(root)
    if address.scheme not in ("", "file"):
        raise NeedsSpark(f"{root} is not a local folder")
    return Path(unquote(address.path)) if address.scheme else Path(root)


@contextmanager
def _left_to_spark(folder: Path) -> Iterator[None]:
    """Spark has the last word on a table that cannot be read here, for example while it is vacuumed."""
    try:
        yield
    except NeedsSpark as reason:
        raise NeedsSpark(f"{folder}: {reason}") from reason
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise NeedsSpark(f"{folder}: {error}") from error
