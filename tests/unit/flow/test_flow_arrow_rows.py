"""A small batch for a database comes to the driver once; it is loaded as every other batch is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tallymark.checks import split
from tallymark.flow import load
from unit.flow.shop import ORDERS, DatabaseShop, csv


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> DatabaseShop:
    shop = DatabaseShop.at(tmp_path, spark)
    shop.pipeline("silver.orders", ORDERS)
    return shop


@pytest.fixture
def persisted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Frames that Spark was asked to keep."""
    kept: list[str] = []

    def persist(frame: DataFrame, *args: Any) -> DataFrame:
        kept.append(str(frame))
        return frame

    monkeypatch.setattr("pyspark.sql.classic.dataframe.DataFrame.persist", persist)
    return kept


def test_a_small_batch_is_not_kept_in_spark(shop: DatabaseShop, persisted: list[str]) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00", "2,new,2.00"))
    assert shop.load().counts.inserted == 2
    assert persisted == []


def test_every_row_says_which_file_it_is_from(shop: DatabaseShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rows of one file are in several parts."""
    monkeypatch.setattr(load, "ROWS_AT_ONCE", 2)
    shop.drop("orders/1.csv", csv("1,new,1.00", "2,new,2.00", "3,,3.00"))
    shop.drop("orders/2.csv", csv("3,sent,", "4,new,4.00"))
    shop.load()
    found = shop.rows("silver.orders", "order_id", "status", "amount", "_source_file", "_source_file_hash")
    assert [(row[:3], row[3].rpartition("/")[2]) for row in found] == [
        ((1, "new", "1.00"), "1.csv"),
        ((2, "new", "2.00"), "1.csv"),
        ((3, "sent", None), "2.csv"),
        ((4, "new", "4.00"), "2.csv"),
    ]
    applied = {str(row[0]) for row in shop.sql("SELECT content_hash FROM _tallymark_applied")}
    assert {row[4] for row in found} == applied
    assert len(applied) == 2
    [(ingested,)] = shop.sql('SELECT DISTINCT _ingested_at FROM "silver.orders"')
    assert ingested.endswith("+00:00")


def test_a_large_batch_gives_the_same(shop: DatabaseShop, tmp_path: Path, spark: SparkSession) -> None:
    rows = csv("1,new,1.00", '2,"a ""b""\\N\tc",2.00', "3,,", "1,again,5.00")
    shop.drop("orders/1.csv", rows)
    small = shop.load().counts
    (tmp_path / "other").mkdir()
    other = DatabaseShop.at(tmp_path / "other", spark)
    other.pipeline("silver.orders", ORDERS)
    other.drop("orders/1.csv", rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(split, "MOST_BYTES", 0)
        large = other.load().counts
    assert small == large
    wanted = ("order_id", "status", "amount", "_source_file_hash")
    assert shop.rows("silver.orders", *wanted) == other.rows("silver.orders", *wanted)


def test_bad_rows_go_to_the_quarantine_all_the_same(shop: DatabaseShop, persisted: list[str]) -> None:
    shop.drop("orders/1.csv", csv("1,new,1.00", "x,new,2.00", "3,new,3.00"))
    counts = shop.load().counts
    assert (counts.inserted, counts.rejected, counts.total) == (2, 1, 3)
    assert shop.rows() == [(1, "new"), (3, "new")]
    assert len(persisted) == 1


def test_packed_files_count_for_what_may_be_in_them(tmp_path: Path) -> None:
    from tallymark.model.batch import SourceFile

    def fits(name: str, size: int) -> bool:
        return split.fits_driver([SourceFile(name, size, 0, "h")])

    assert fits("a.csv", 64 << 20)
    assert not fits("a.csv", (64 << 20) + 1)
    assert fits("a.csv.gz", 4 << 20)
    assert not fits("a.csv.gz", 5 << 20)
    assert not fits("a.parquet", 5 << 20)
