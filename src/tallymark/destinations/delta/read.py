"""A Delta table as an input: which version it has now, and the rows of one version.

A version is the commit's number and a digest of the commit, since a table that was recreated, or copied back
from a backup, uses the same numbers for other rows. The log of a local folder is read without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.delta.log import commit_digest, latest_change
from tallymark.destinations.lakehouse.history import HistoryEntry
from tallymark.errors import InputMoved
from tallymark.spark.failures import condition, reason

_DIGITS = 12  # of a digest: enough to tell two commits of one number apart
_VACUUM = {"VACUUM START", "VACUUM END"}
_FILE_IS_GONE = ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND")


class CommitLog(Protocol):
    def latest(self) -> int | None:
        """The last version that may have changed the table; None when there is no table."""

    def digest(self, version: int) -> str | None:
        """None when the log no longer reaches back to it, or never had it."""


@dataclass(frozen=True)
class FileLog:
    folder: Path

    def latest(self) -> int | None:
        return latest_change(self.folder)

    def digest(self, version: int) -> str | None:
        return commit_digest(self.folder, version)


class VersionedTable(Protocol):
    """A table as its history in Spark tells."""

    def newest_version(self) -> int | None: ...

    def entry_of(self, version: int) -> HistoryEntry | None: ...

    def table_id(self) -> str: ...


@dataclass(frozen=True)
class SparkLog:
    """DESCRIBE HISTORY tells less of a commit than its file, and its times are not the same each time."""

    table: VersionedTable

    def latest(self) -> int | None:
        version = self.table.newest_version()
        while version and (entry := self.table.entry_of(version)) and entry.operation in _VACUUM:
            version -= 1
        return version

    def digest(self, version: int) -> str | None:
        entry = self.table.entry_of(version)
        if entry is None:
            return None
        marker = entry.marker.to_json() if entry.marker is not None else ""
        return sha256(repr((self.table.table_id(), entry.operation, marker)).encode()).hexdigest()


@dataclass(frozen=True)
class DeltaInput:
    table: str
    table_sql: str
    log: CommitLog

    def version(self) -> str | None:
        latest = self.log.latest()
        return None if latest is None else self._text(latest)

    @contextmanager
    def at(self, version: str, spark: SparkSession) -> Iterator[DataFrame]:
        """Phases: 1. the log still has this very commit; 2. Spark finds it, and its files are there; 3. while
        the rows are read, a VACUUM may still take files away."""
        number = version.partition("-")[0]
        latest = self.log.latest()
        if latest is None or not number.isdecimal() or self._text(int(number)) != version:
            raise self._moved(version)
        try:
            frame = spark.sql(f"SELECT * FROM {self.table_sql} VERSION AS OF {number}")
            files = frame.inputFiles() if int(number) < latest else []
        except AnalysisException as error:
            raise self._moved(version, reason(error)) from error
        if any(_is_gone(file) for file in files):
            raise self._moved(version, "VACUUM has removed its files")
        try:
            yield frame
        except Exception as error:
            if _is_lost_file(error, frame):
                raise self._moved(version, reason(error)) from error
            raise

    def _text(self, version: int) -> str | None:
        digest = self.log.digest(version)
        return None if digest is None else f"{version}-{digest[:_DIGITS]}"

    def _moved(self, wanted: str, why: str = "") -> InputMoved:
        return InputMoved(self.table, wanted=wanted, found=self.version(), why=why)


def _is_lost_file(error: Exception, frame: DataFrame) -> bool:
    """Whether the lost file is of this table: the caller may read others too."""
    if not condition(error).startswith(_FILE_IS_GONE):
        return False
    return any(file.rpartition("/")[2] in str(error) for file in frame.inputFiles())


def _is_gone(file: str) -> bool:
    """Checked only where it costs nothing."""
    path = file.removeprefix("file:")
    return path != file and not any(Path(name).exists() for name in (path, unquote(path)))
