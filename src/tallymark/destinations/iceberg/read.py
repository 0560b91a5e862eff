"""An Iceberg table as an input: which version it has now, and the rows of one version.

A version is the snapshot that changed rows last: its number is random, so that no other table has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.iceberg.metadata import EMPTY, TableMetadata
from tallymark.errors import InputMoved
from tallymark.spark.failures import reason

_FILE_IS_GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "NotFoundException")


@dataclass(frozen=True)
class IcebergInput:
    table: str
    table_sql: str
    latest: Callable[[], TableMetadata | None]

    def version(self) -> str | None:
        metadata = self.latest()
        return None if metadata is None else metadata.content_version

    @contextmanager
    def at(self, version: str, spark: SparkSession) -> Iterator[DataFrame]:
        """While the rows are read, an expiry may still take files away."""
        metadata = self.latest()
        if metadata is None or not _has(metadata, version):
            raise self._moved(version)
        where = " WHERE false" if version == EMPTY else f" VERSION AS OF {version}"
        try:
            frame = spark.sql(f"SELECT * FROM {self.table_sql}{where}")
        except AnalysisException as error:
            raise self._moved(version, reason(error)) from error
        try:
            yield frame
        except Exception as error:
            if any(name in str(error) for name in _FILE_IS_GONE) and metadata.location in str(error):
                raise self._moved(version, reason(error)) from error
            raise

    def _moved(self, wanted: str, why: str = "") -> InputMoved:
        return InputMoved(self.table, wanted=wanted, found=self.version(), why=why)


def _has(metadata: TableMetadata, version: str) -> bool:
    if version == EMPTY:
        return metadata.head is None
    return version.isdecimal() and int(version) in metadata.snapshots
