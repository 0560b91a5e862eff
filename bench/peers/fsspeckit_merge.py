"""fsspeckit: upsert into a folder of Parquet files.

Tried once each on a busy machine, 100,000 rows and batches of 10,000: its PyArrow back end 0.9 to 1.2 s a
batch (without streaming up to 1.0 s), its DuckDB back end 1.2 to 1.4 s. Both look up each key of a batch in
a list, so the time grows with the square of the batch: 100,000 rows may well run into the time limit.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pyarrow.compute
import pyarrow.parquet
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from loguru import logger

from arrow_rows import read_all, read_rows
from protocol import Task, Totals, measure


class Fsspeckit:
    version = importlib.metadata.version("fsspeckit")

    def __init__(self, task: Task) -> None:
        self._folder = str(task.work / "table")
        self._key = task.key
        self._dataset = PyarrowDatasetIO()
        logger.remove()  # it logs every step to stderr unless told otherwise

    def fill(self, files: list[Path]) -> None:
        self._dataset.write_dataset(read_all(files), self._folder, mode="overwrite")

    def apply(self, batch: Path) -> None:
        self._dataset.merge(
            read_rows(batch),
            self._folder,
            strategy="upsert",
            key_columns=[self._key],
            enable_streaming_merge=False,
        )

    def totals(self) -> Totals:
        amounts = pyarrow.parquet.read_table(self._folder, columns=["amount_cents"])["amount_cents"]
        return Totals(rows=len(amounts), checksum=pyarrow.compute.sum(amounts).as_py())


if __name__ == "__main__":
    measure("fsspeckit_merge", Fsspeckit)
