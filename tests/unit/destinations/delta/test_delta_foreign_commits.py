"""What is in the place of a Delta table that is not there: somebody else's files, or remains of a first load."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import tallymark as tm
from tallymark.destinations.lakehouse.home import (
    Folder,
    first_file_by_spark,
    first_local_file,
    note_first_load,
    refuse_foreign_files,
)
from tallymark.errors import NotATable


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a.csv"],
        ["empty"],
        ["_hidden", ".hidden", "x._COPYING_", "_dir/a", ".dir/a"],
        ["_delta_log/00.json", "_tallymark/applied/a.parquet"],
        ["_metadata"],
        ["_k=1/a.parquet"],
        ["deep/er/a b.csv"],
    ],
)
def test_files_in_the_place_of_a_table(spark: SparkSession, tmp_path: Path, names: list[str]) -> None:
    table = tmp_path / "a table"
    put(table, *names)
    assert first_local_file(table) == first_file_by_spark(spark, str(table))


def test_a_file_in_the_place_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("x")
    assert first_local_file(tmp_path / "t") == first_file_by_spark(spark, str(tmp_path / "t")) is not None


SEEN_HERE, ONLY_BY_SPARK = "seen here", "only by Spark"


@pytest.fixture(params=[SEEN_HERE, ONLY_BY_SPARK])
def is_seen(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == SEEN_HERE)


def check(spark: SparkSession, table: Path, *, is_seen: bool) -> None:
    refuse_foreign_files(spark, Folder(str(table), table if is_seen else None))


def begin(spark: SparkSession, table: Path, *, is_seen: bool) -> None:
    note_first_load(spark, Folder(str(table), table if is_seen else None), "batch")


def put(table: Path, *names: str) -> None:
    for name in names:
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_text("" if name == "empty" else "x")


def data_files() -> list[str]:
    """As Delta names them: of a table, and of one that is partitioned."""
    return [f"part-00000-{uuid4()}-c000.snappy.parquet", f"day=2026-11-01/part-00001-{uuid4()}.c000.parquet"]


def test_what_a_killed_first_load_has_left_is_no_obstacle(
    spark: SparkSession, tmp_path: Path, is_seen: bool
) -> None:
    table = tmp_path / "a {table}"
    begin(spark, table, is_seen=is_seen)
    begin(spark, table, is_seen=is_seen)
    put(table, *data_files())
    check(spark, table, is_seen=is_seen)


def test_data_files_that_nobody_has_begun_are_somebody_elses(
    spark: SparkSession, tmp_path: Path, is_seen: bool
) -> None:
    put(tmp_path, *data_files())
    with pytest.raises(NotATable, match="part-0000"):
        check(spark, tmp_path, is_seen=is_seen)


@pytest.mark.parametrize(
    "name", ["orders.csv", "day=2026-11-01/part-0.parquet", "part-00000-of-mine.parquet"]
)
def test_other_files_are_refused_where_a_table_was_begun_too(
    spark: SparkSession, tmp_path: Path, is_seen: bool, name: str
) -> None:
    begin(spark, tmp_path, is_seen=is_seen)
    put(tmp_path, *data_files(), name)
    with pytest.raises(NotATable, match=name):
        check(spark, tmp_path, is_seen=is_seen)


@pytest.mark.parametrize("markers", ["markers/a.parquet", "applied/part-0.parquet"])
def test_what_is_left_of_a_table_without_its_log_is_refused(
    spark: SparkSession, tmp_path: Path, is_seen: bool, markers: str
) -> None:
    begin(spark, tmp_path, is_seen=is_seen)
    put(tmp_path, *data_files(), f"_tallymark/{markers}")
    with pytest.raises(NotATable, match="part-0000"):
        check(spark, tmp_path, is_seen=is_seen)


def test_a_table_that_its_catalog_does_not_know_any_more(spark: SparkSession) -> None:
    """A first load that was killed before the catalog heard of it, or a catalog that was lost."""
    name, rows = f"t_{uuid4().hex}", spark.range(3).coalesce(1)
    spark.sql("CREATE SCHEMA IF NOT EXISTS foreign")
    folder = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"), "foreign.db", name)

    def load() -> int:
        receipt = tm.merge(rows, f"foreign.{name}", strategy="upsert", unique_key="id", spark=spark)
        return receipt.counts.inserted

    rows.write.parquet(str(folder))
    with pytest.raises(NotATable, match=name) as refused:
        load()
    assert f"CREATE TABLE foreign.{name} USING delta" in refused.value.hint
    shutil.rmtree(folder)
    rows.limit(1).write.format("delta").save(str(folder))
    with pytest.raises(NotATable, match=name):
        load()
    spark.sql(f"CREATE TABLE foreign.{name} USING delta LOCATION '{folder}'")
    assert load() == 2
