"""Where Delta tables are and what identifies them, without Spark: not even its import."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from tallymark.destinations.declaration import Caution
from tallymark.destinations.delta.log import local_folder, went_back
from tallymark.model.receipt import Receipt
from tallymark.model.types import quoted

_S3 = ("s3", "s3a", "s3n")


def cautions_for(place: str, *, single_writer: bool) -> tuple[Caution, ...]:
    """Delta's log on S3 asks whether the next commit is there and then writes it: of two processes that do so
    at once, one loses its commit, and neither notices. Other stores let one of two creators win."""
    if single_writer or urlsplit(place).scheme not in _S3:
        return ()
    return (
        Caution(
            f"{place}: Delta on S3 loses commits when two processes write one table at the same time, and "
            "neither of them notices",
            "let only one process at a time write these tables, and then set single_writer: true",
        ),
    )


@dataclass(frozen=True)
class DeltaLocator:
    """With neither `root` nor `catalog`, a table's name is its folder or URL."""

    root: str | None = None
    catalog: str | None = None
    single_writer: bool = False  # declared by the user
    durable: bool = True  # commits into local folders are flushed to the disk before they are recorded

    def at(self, table: str) -> DeltaLocation:
        return DeltaLocation(self, table)

    def key(self, table: str) -> str:
        return self.at(table).key

    def was_rolled_back(self, table: str, last: Receipt) -> bool:
        path = self.at(table).path
        return path is not None and went_back(path, int(last.version), last.batch_id)


@dataclass(frozen=True)
class DeltaLocation:
    locator: DeltaLocator
    table: str

    @cached_property
    def path(self) -> str | None:
        """None for a table of a catalog, which knows where it is."""
        if self.locator.root is not None:
            return f"{self.locator.root.rstrip('/')}/{self.table.replace('.', '/')}"
        return self.table if self.locator.catalog is None else None

    @property
    def key(self) -> str:
        return f"delta:{self.path or f'{self.locator.catalog}.{self.table}'}"

    @property
    def sql(self) -> str:
        if self.path is not None:
            return f"delta.{quoted(self.path)}"
        return ".".join(quoted(part) for part in [self.locator.catalog or "", *self.table.split(".")])

    @property
    def schema_sql(self) -> str:
        return self.sql.rpartition(".")[0]

    @property
    def folder(self) -> Path | None:
        """An absolute local folder, if it is one. (Spark and Python may disagree on how a URL is encoded.)"""
        path = None if self.path is None or "%" in self.path else local_folder(self.path)
        return path if path is not None and path.is_absolute() else None

    @property
    def readable_folder(self) -> Path | None:
        """A local folder whose log this process reads by itself. A path may also be one of the machine that
        Spark runs on, where this machine has no such folder."""
        folder = None if self.path is None else local_folder(self.path)
        if folder is None or not Path(self.locator.root or folder.parent).is_dir():
            return None
        return folder
