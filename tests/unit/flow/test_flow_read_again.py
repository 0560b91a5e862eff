"""Large files of columns are not kept between the checks and the write, but read again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tallymark as tm
from tallymark.destinations.lakehouse.commit import LakehouseLoad
from tallymark.errors import FileChanged, TooManyBadRows
from tallymark.flow import load
from tallymark.model.receipt import Counts, Marker

ROWS = {"id": [1, 2, 2], "name": ["a", "b", "c"]}


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_TOO_LARGE_TO_KEEP", 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.parquet"
    pq.write_table(pa.table(ROWS), path)
    return path


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({"strategy": "append_only"}, Counts(inserted=3, total=3)),
        ({"strategy": "upsert", "unique_key": "id"}, Counts(inserted=2, skipped=1, total=3)),
        ({"strategy": "full_merge", "unique_key": "id"}, Counts(inserted=2, skipped=1, total=3)),
    ],
)
def test_rows_and_counts(spark: SparkSession, file: Path, settings: dict[str, str], counts: Counts) -> None:
    table = file.parent / "table"
    receipt = tm.merge(file, table, spark=spark, **settings)  # type: ignore[arg-type]
    assert (receipt.counts, receipt.warnings) == (counts, ())
    assert spark.read.format("delta").load(str(table)).count() == counts.inserted


def test_bad_rows_are_found_all_the_same(spark: SparkSession, file: Path) -> None:
    pq.write_table(pa.table({"id": [1, None], "name": ["a", "b"]}), file)
    with pytest.raises(TooManyBadRows, match="row 2"):
        tm.merge(file, file.parent / "table", strategy="upsert", unique_key="id", spark=spark)


def test_a_file_that_changes_before_the_write_is_not_written(
    spark: SparkSession, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "check_gates", lambda *_: (pq.write_table(pa.table({"id": [9]}), file), ())[1])
    with pytest.raises(FileChanged):
        tm.merge(file, file.parent / "table", strategy="append_only", spark=spark)
    assert not (file.parent / "table").exists()


@pytest.mark.parametrize(("strategy", "told"), [("append_only", 1), ("upsert", 0)])
def test_a_file_that_changes_while_the_commit_reads_it_is_told(
    spark: SparkSession, file: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, told: int
) -> None:
    commit = LakehouseLoad.commit

    def changes(self: LakehouseLoad, marker: Marker) -> object:
        done = commit(self, marker)
        pq.write_table(pa.table({"id": [9, 9, 9], "name": ["x", "x", "x"]}), file)
        return done

    monkeypatch.setattr(LakehouseLoad, "commit", changes)
    key = {"unique_key": "id"} if strategy == "upsert" else {}
    receipt = tm.merge(file, file.parent / "table", strategy=strategy, spark=spark, **key)  # type: ignore[arg-type]
    assert [str(file) in warning and "changed while" in warning for warning in receipt.warnings] == [
        True
    ] * told
