"""What the options of an Iceberg destination mean, and what they cannot mean."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from conformance.orders import DAY1, ORDERS, SNAPSHOT, UPSERT, order
from iceberg_readers import iceberg_table
from oracle import canonical
from tallymark.destinations.iceberg import KIND, IcebergDestinationConfig
from tallymark.destinations.iceberg.catalog import IcebergLocator
from tallymark.destinations.iceberg.metadata import HadoopFiles, TableMetadata, make_durable
from tallymark.destinations.iceberg.types import stored_as
from tallymark.destinations.iceberg.write import partition_sql, sort_sql
from tallymark.errors import ConfigError, Unsupported
from unit.destinations.iceberg.iceberg_bench import iceberg_bench, sql_name


def locator(**options: Any) -> IcebergLocator:
    config = IcebergDestinationConfig.model_validate({"type": "iceberg", **options})
    return IcebergLocator.of(config, lambda path: path if path.startswith("/") else f"/project/{path}")


def test_a_hadoop_catalog_is_a_folder() -> None:
    at = locator(warehouse="lake")
    assert at.settings["warehouse"] == at.place == "/project/lake"
    assert at.key("silver.orders") == "iceberg:/project/lake/silver.orders"
    assert at.namespaces("eu.sales.orders") == ["`iceberg`.`eu`", "`iceberg`.`eu`.`sales`"]
    assert at.sql("eu.sales.orders") == "`iceberg`.`eu`.`sales`.`orders`"


def test_databases_are_named_as_everywhere() -> None:
    sqlite = locator(catalog="jdbc", uri="sqlite:///catalog.db", warehouse="lake")
    assert sqlite.settings["uri"] == "jdbc:sqlite:/project/catalog.db"
    assert (
        locator(catalog="jdbc", uri="sqlite:////data/c.db", warehouse="lake").uri == "jdbc:sqlite:/data/c.db"
    )
    url = "postgresql://me:s%40fe@db.example.org:5433/shop?sslmode=require"
    postgres = locator(catalog="jdbc", uri=url, warehouse="lake")
    assert postgres.settings["uri"] == "jdbc:postgresql://db.example.org:5433/shop"
    assert postgres.settings["jdbc.user"] == "me"
    assert postgres.settings["jdbc.password"] == "s@fe"
    assert postgres.settings["jdbc.sslmode"] == "require"
    shown = (postgres.place, postgres.key("t"), repr(postgres))
    assert not any("fe@" in text or "s@fe" in text for text in shown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs warehouse"),
        ({"catalog": "jdbc", "warehouse": "w"}, "needs uri"),
        ({"catalog": "rest"}, "needs uri"),
        ({"warehouse": "w", "uri": "x"}, "has no uri"),
        ({"warehouse": "w", "format_version": 1}, "format_version"),
        ({"warehouse": "w", "name": "a.b"}, "name"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        IcebergDestinationConfig.model_validate({"type": "iceberg", **options})


def test_spark_gets_the_driver_of_the_catalogs_database_only() -> None:
    def packages(**options: Any) -> list[str]:
        config = IcebergDestinationConfig.model_validate({"type": "iceberg", "warehouse": "w", **options})
        needs = KIND.spark_needs_of(config)
        assert needs is not None
        return [package.artifact for package in needs.packages]

    assert packages() == ["iceberg-spark-runtime-4.1"]
    assert packages(catalog="jdbc", uri="sqlite:///c.db")[1:] == ["sqlite-jdbc"]
    assert packages(catalog="jdbc", uri="postgresql://h/d")[1:] == ["postgresql"]


def test_transforms_of_partitions() -> None:
    parts = ["at", "day(at)", "bucket(16, id)", "truncate(name, 4)", "months( at )"]
    assert partition_sql(parts) == (
        "`at`",
        "days(`at`)",
        "bucket(16, `id`)",
        "truncate(4, `name`)",
        "months(`at`)",
    )
    for wrong in ("weeks(at)", "bucket(id)", "days(3, at)"):
        with pytest.raises(ConfigError, match="not a transform"):
            partition_sql([wrong])
    assert sort_sql(["id", "at desc", "name ASC NULLS LAST"]) == (
        "`id`",
        "`at` DESC",
        "`name` ASC NULLS LAST",
    )


def test_types_that_iceberg_has() -> None:
    assert stored_as("struct<a:tinyint,b:array<smallint>>") == "struct<a:int,b:array<int>>"
    assert stored_as("void") == "string"
    assert stored_as("decimal(12,2)") == "decimal(12,2)"
    with pytest.raises(Unsupported, match="interval"):
        stored_as("interval day to second")


def test_metadata_without_snapshots_or_with_unknown_keys_is_read() -> None:
    text = {
        "format-version": 2,
        "table-uuid": "u",
        "location": "file:/w/t/",
        "current-snapshot-id": -1,
        "schemas": [{"schema-id": 3, "fields": [{"id": 1, "name": "id", "type": "long"}]}],
        "current-schema-id": 3,
        "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 1, "transform": "identity"}]}],
        "something": "new",
    }
    found = TableMetadata.parse(json.dumps(text).encode())
    assert (found.head, found.version, found.ancestors, found.unique_by) == (None, "empty", (), ())
    assert (found.location, found.column_names, found.partitioned_by) == (
        "file:/w/t",
        ["id"],
        (("id", "identity"),),
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("version", [2, 3])
def test_layout_of_a_new_table(mode: str, version: int, spark: SparkSession, tmp_path: Path) -> None:
    layout = {
        "partition_by": ["days(at)", "bucket(4, id)"],
        "sort_by": ["id"],
        "properties": {"write.metadata.compression-codec": "gzip"},
    }
    bench = iceberg_bench(
        spark, tmp_path, format_version=version, write_mode=mode, tables={"silver.orders": layout}
    )
    bench.load(UPSERT, ORDERS, DAY1)
    assert bench.load(UPSERT, ORDERS, [order(1, "b"), order(2, day=3), order(7)]).updated == 2
    assert canonical(bench.rows()) == canonical([order(1, "b"), order(2, day=3), order(3), order(7)])
    table = iceberg_table(tmp_path / "ice" / "silver" / "orders")
    assert table.format_version == version
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[4]"]
    assert table.properties["write.merge.mode"] == mode
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    files = int(snapshot.summary.additional_properties.get("total-delete-files", "0"))
    assert (files > 0) == (mode == "merge-on-read")


@pytest.mark.slow
def test_partitions_that_are_the_slices_are_replaced_as_files(spark: SparkSession, tmp_path: Path) -> None:
    bench = iceberg_bench(spark, tmp_path)
    bench.load(SNAPSHOT, ORDERS, [order(1, "a"), order(2, "b"), order(3, None)])
    assert bench.load(SNAPSHOT, ORDERS, [order(9, "a"), order(8, None)]).deleted == 2
    assert bench.commits[-1].method == "replace partitions"
    bench.spark.sql(f"ALTER TABLE {sql_name(bench)} ADD PARTITION FIELD bucket(2, id)")
    assert bench.load(SNAPSHOT, ORDERS, [order(4, "b"), order(5, "a")]).deleted == 2
    assert bench.commits[-1].method == "replace slices", "files of the older partitions are left"
    assert canonical(bench.rows()) == canonical([order(8, None), order(4, "b"), order(5, "a")])


@pytest.mark.slow
def test_a_type_change_that_died_is_finished_by_the_next_load(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallymark.destinations.iceberg import write  # patched below

    bench = iceberg_bench(spark, tmp_path)
    bench.load(UPSERT, ORDERS, DAY1)
    finish = write.finish_types
    monkeypatch.setattr(write, "finish_types", lambda *_: None)
    bench.load(UPSERT, ORDERS.replace("name string", "name bigint"), [order(1) | {"name": 5}], rebuild=True)
    monkeypatch.setattr(write, "finish_types", finish)
    bench.target.markers(None)
    assert bench.rows() == [order(1) | {"name": 5}]
    assert list(bench.rows()[0]) == ["id", "name", "amount", "at"]


def test_a_folder_that_holds_no_table_is_no_table(tmp_path: Path) -> None:
    files = HadoopFiles(tmp_path, tmp_path / "silver" / "orders")
    assert files.latest() is None
    (tmp_path / "silver" / "orders" / "metadata").mkdir(parents=True)
    assert files.latest() is None


def test_what_a_load_wrote_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def sync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)

    monkeypatch.setattr(os, "fsync", sync)
    for name, age in (("old.parquet", 100), ("new.parquet", 0)):
        path = tmp_path / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    make_durable(tmp_path, time.time_ns() - 10**10)
    assert "new.parquet" in synced and "data" in synced and "old.parquet" not in synced
