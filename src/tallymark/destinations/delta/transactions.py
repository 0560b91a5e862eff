"""The highest transaction number that Delta keeps for our writes. It refuses late writers, and it outlives
the log: every checkpoint holds it, also when the commit that used it is cleaned up. No SQL shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.delta.log import CHECKPOINT, COMMIT
from tallymark.destinations.lakehouse.home import Folder
from tallymark.spark.frames import literal_path

APP = "tallymark"
_SCHEMA = "txn struct<appId: string, version: bigint, lastUpdated: bigint>"
_FILES = (("json", "*.json"), ("parquet", "*.checkpoint*.parquet"))


@dataclass(frozen=True)
class LastTransaction:
    sequence: int
    updated_at: datetime | None


def last_transaction(spark: SparkSession, home: Folder) -> LastTransaction | None:
    """None if no load of ours was ever committed to this table."""
    return _in_files(home.local) if home.local is not None else _by_spark(spark, home.url)


def _in_files(folder: Path) -> LastTransaction | None:
    """Newest first: numbers only grow, and a checkpoint has what all commits before it had."""
    by_version: dict[int, tuple[list[Path], list[Path]]] = {}
    for file in (folder / "_delta_log").iterdir():
        if commit := COMMIT.fullmatch(file.name):
            by_version.setdefault(int(commit[1]), ([], []))[0].append(file)
        elif checkpoint := CHECKPOINT.fullmatch(file.name):
            by_version.setdefault(int(checkpoint[1]), ([], []))[1].append(file)
    for version in sorted(by_version, reverse=True):
        for files in by_version[version]:
            if found := _highest(action for file in files for action in _transactions(file)):
                return found
    return None


def _transactions(file: Path) -> Iterator[dict[str, Any]]:
    try:
        if file.suffix == ".parquet":
            table = pq.read_table(file, columns=["txn"])
            yield from (txn for txn in (table["txn"].to_pylist() if table.num_columns else ()) if txn)
        else:
            lines = file.read_text(encoding="utf-8").splitlines()
            yield from (json.loads(line)["txn"] for line in lines if line.startswith('{"txn"'))
    except (pa.ArrowException, OSError, ValueError):  # half a checkpoint: an older one has it too
        return


def _by_spark(spark: SparkSession, url: str) -> LastTransaction | None:
    frames = []
    for kind, names in _FILES:
        try:
            found = spark.read.schema(_SCHEMA).format(kind).load(f"{literal_path(url)}/_delta_log/{names}")
            found.columns  # noqa: B018 (Spark Connect lists the files only here)
            frames.append(found.where(F.col("txn.appId") == APP).select("txn.version", "txn.lastUpdated"))
        except AnalysisException:  # there is no such file
            continue
    if not frames:
        return None
    rows = reduce(DataFrame.unionAll, frames).orderBy(F.desc("version")).limit(1).collect()
    return _highest({"appId": APP, "version": row[0], "lastUpdated": row[1]} for row in rows)


def _highest(actions: Iterable[dict[str, Any]]) -> LastTransaction | None:
    ours = [action for action in actions if action["appId"] == APP]
    if not ours:
        return None
    last = max(ours, key=lambda action: action["version"])
    milliseconds = last.get("lastUpdated")
    updated_at = None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    return LastTransaction(last["version"], updated_at)
