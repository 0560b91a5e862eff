"""Facts about a local table, as small Parquet files in a folder of their own inside the table's folder.

A row is a fact about one commit: the same row twice means no more than once, so no transaction is needed.
1. A new file appears whole, under its name or not at all.
2. When there are many, they are written as one, and only then removed.
3. A reader that loses a file meanwhile looks again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tallymark.destinations.durable import sync_file, sync_folder, sync_new_folder
from tallymark.errors import DestinationError
from tallymark.model.private_files import folder_of_a_table, open_as_table

MOST_FILES = 32
LARGE_BYTES = 64 << 20  # rewriting such a file costs more than opening it
_ROW_GROUP = 50_000
_LOOKS = 5

T = TypeVar("T")


@dataclass(frozen=True)
class FactFiles:
    folder: Path
    facts: str  # what errors call them
    schema: pa.Schema | None = None  # of every file, if they have one in common

    def listed(self) -> list[Path]:
        return sorted(self.folder.glob("[!._]*.parquet"))

    def read(self, look: Callable[[list[Path]], T]) -> T:
        for number in range(1, _LOOKS + 1):
            files = self.listed()
            try:
                return look(files)
            except FileNotFoundError as error:
                if number == _LOOKS:
                    raise self._unreadable(files, error) from error
            except (pa.ArrowException, OSError) as error:
                raise self._unreadable(files, error) from error
        raise AssertionError("unreachable")

    def schemas(self) -> dict[Path, pa.Schema]:
        return self.read(lambda files: {file: pq.read_schema(file) for file in files})

    def add(self, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> None:
        """Only a few of the rows are in memory at a time."""
        with self._new_file() as unfinished, pq.ParquetWriter(unfinished, schema) as writer:
            for group in _grouped(rows):
                writer.write_table(pa.Table.from_batches(group, schema), row_group_size=_ROW_GROUP)

    def take(self, finished: Path) -> None:
        """A whole file on the same disk, written by somebody else."""
        with self._new_file() as unfinished:
            finished.replace(unfinished)

    def unfinished(self) -> Path:
        """A name that readers ignore."""
        folder_of_a_table(self.folder)
        return self.folder / f".{uuid4().hex}"

    def too_many(self) -> list[Path]:
        """Files that should be rewritten as one; empty if there are few."""
        small = [file for file in self.listed() if _size(file) < LARGE_BYTES]
        return small if len(small) > MOST_FILES else []

    def rewrite(self, files: Sequence[Path], keep: ds.Expression | None = None) -> None:
        """As one file. All have the same schema."""
        try:
            stored = ds.dataset([str(file) for file in files], format="parquet")
            self.add(stored.schema, stored.to_batches(filter=keep))
        except FileNotFoundError:  # another process does the same
            return
        except (pa.ArrowException, OSError) as error:
            if self._first_unreadable(files) is None:
                raise
            raise self._unreadable(files, error) from error
        self.remove(files)

    def remove(self, files: Iterable[Path]) -> None:
        for file in files:
            with suppress(FileNotFoundError):  # another process does the same
                file.unlink()

    def remove_unfinished(self, before: datetime) -> None:
        """Of processes that died."""
        for left in self.folder.glob(".*"):
            with suppress(FileNotFoundError):
                if left.stat().st_mtime >= before.timestamp():
                    continue
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()

    @contextmanager
    def _new_file(self) -> Iterator[Path]:
        unfinished = self.unfinished()
        try:
            yield unfinished
            open_as_table(unfinished)
            sync_file(unfinished)
            finished = self.folder / f"{unfinished.name[1:]}.parquet"
            unfinished.replace(finished)
            sync_folder(self.folder)
            if self.listed() == [finished]:
                sync_new_folder(self.folder)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def _unreadable(self, files: Sequence[Path], error: Exception) -> DestinationError:
        return DestinationError(
            f"{self._first_unreadable(files) or self.folder}: {self.facts} cannot be read: {error}",
            hint=f"bring the file back from a backup; if it never held {self.facts}, remove it",
        )

    def _first_unreadable(self, files: Sequence[Path]) -> Path | None:
        for file in files:
            try:
                stored = ds.dataset([str(file)], schema=self.schema, format="parquet")
                for _ in stored.to_batches():
                    pass
            except (pa.ArrowException, OSError):
                return file
        return None


def _grouped(rows: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Joins small batches: each would become a small row group of its own."""
    group: list[pa.RecordBatch] = []
    for batch in rows:
        group.append(batch)
        if sum(part.num_rows for part in group) >= _ROW_GROUP:
            yield group
            group = []
    if group:
        yield group


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
