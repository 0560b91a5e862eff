"""A folder to write files into, and the two calls that every test of reading makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tallymark.config.pipeline_file import ColumnConfig, SourceConfig
from tallymark.model.batch import SourceFile
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER
from tallymark.sources.new_files import discover, nothing_known
from tallymark.sources.read_files import CORRUPT, SourceFrame, read_files

NOW = datetime(2126, 1, 1, tzinfo=UTC)


@dataclass
class Landing:
    """Files in, rows out."""

    folder: Path
    session: Callable[[], SparkSession]

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def write_frame(self, name: str, frame: DataFrame, spark_format: str) -> Path:
        """One file of Spark's own making."""
        scratch = self.folder / "_scratch" / name
        frame.coalesce(1).write.format(spark_format).save(str(scratch))
        (part,) = scratch.glob("part-*")
        return part.rename(self.folder / name)

    def files(self, glob: str = "*") -> tuple[SourceFile, ...]:
        return discover(SourceConfig(files=glob), self.folder, nothing_known, self.session, now=NOW).files

    def read(self, glob: str = "*", rules: Sequence[dict[str, Any]] = (), **source: Any) -> SourceFrame:
        config = SourceConfig.model_validate({"files": glob, **source})
        declared = [ColumnConfig.model_validate(rule) for rule in rules]
        return read_files(self.session(), config, declared, self.files(glob), self.folder)

    def rows(self, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        """The source's columns and CORRUPT, in file order."""
        return self.rows_of(self.read(*args, **kwargs))

    def rows_of(self, read: SourceFrame) -> list[tuple[Any, ...]]:
        ordered = read.frame.orderBy(FILE_ORDER, ROW_BLOCK, ROW_ORDER)
        return [tuple(row) for row in ordered.select(*self.quoted(read), CORRUPT).collect()]

    def quoted(self, read: SourceFrame) -> list[str]:
        return ["`" + column.name.replace("`", "``") + "`" for column in read.columns]

    def types(self, *args: Any, **kwargs: Any) -> dict[str, str]:
        return {column.name: column.type for column in self.read(*args, **kwargs).columns}


@pytest.fixture
def landing(tmp_path: Path, request: pytest.FixtureRequest) -> Landing:
    """Spark starts only when a test reads."""
    return Landing(tmp_path, lambda: request.getfixturevalue("spark"))
