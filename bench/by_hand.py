"""What people write themselves for the same jobs: plain MERGE statements, and the best public recipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_BATCH = "batch"


@dataclass(frozen=True)
class HandTable:
    spark: SparkSession
    path: Path

    @property
    def sql(self) -> str:
        return f"delta.`{self.path}`"

    def create(self, rows: DataFrame, partition_by: Sequence[str] = ()) -> None:
        writer = rows.write.format("delta").option("delta.enableDeletionVectors", "true")
        writer.partitionBy(*partition_by).save(str(self.path))

    def batch(self, file: Path) -> DataFrame:
        frame = self.spark.read.parquet(str(file))
        frame.createOrReplaceTempView(_BATCH)
        return frame


Load = Callable[[HandTable, Path], None]


def upsert(table: HandTable, file: Path) -> None:
    table.batch(file)
    table.spark.sql(
        f"MERGE INTO {table.sql} t USING {_BATCH} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()


def upsert_replacing(table: HandTable, file: Path) -> None:
    """The fastest known for whole rows: Delta's writer replaces the rows of the batch's keys."""
    writer = table.batch(file).write.format("delta").mode("overwrite").option("replaceUsing", "id")
    writer.save(str(table.path))


def upsert_in_range(table: HandTable, file: Path) -> None:
    """The recipe of the Delta documentation: let the condition say where in the table the keys are."""
    frame = table.batch(file)
    low, high = frame.selectExpr("min(id)", "max(id)").collect()[0]
    table.spark.conf.set("spark.databricks.delta.merge.materializeSource", "none")
    table.spark.sql(
        f"MERGE INTO {table.sql} t USING {_BATCH} s ON t.id = s.id AND t.id BETWEEN {low} AND {high} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()


def full_merge(table: HandTable, file: Path) -> None:
    table.batch(file)
    table.spark.sql(
        f"MERGE INTO {table.sql} t USING {_BATCH} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ).collect()


def full_merge_changed(table: HandTable, file: Path) -> None:
    """Only what differs is written."""
    columns = [name for name in table.batch(file).columns if name != "id"]
    differs = " OR ".join(f"NOT (t.{name} <=> s.{name})" for name in columns)
    table.spark.sql(
        f"MERGE INTO {table.sql} t USING {_BATCH} s ON t.id = s.id "
        f"WHEN MATCHED AND ({differs}) THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ).collect()


def overwrite(table: HandTable, file: Path) -> None:
    """A whole extract needs no merge."""
    table.batch(file).write.format("delta").mode("overwrite").save(str(table.path))


def scd2(table: HandTable, file: Path) -> None:
    """The usual two steps: close the open versions that changed, then add the new ones."""
    tracked = [name for name in table.batch(file).columns if name not in ("id", "updated_at")]
    differs = " OR ".join(f"NOT (t.{name} <=> s.{name})" for name in tracked)
    table.spark.sql(
        f"MERGE INTO {table.sql} t USING {_BATCH} s ON t.id = s.id AND t.valid_to IS NULL "
        f"WHEN MATCHED AND ({differs}) THEN UPDATE SET valid_to = s.updated_at"
    ).collect()
    table.spark.sql(
        f"INSERT INTO {table.sql} BY NAME "
        f"SELECT s.*, s.updated_at AS valid_from, CAST(NULL AS timestamp) AS valid_to FROM {_BATCH} s "
        f"LEFT ANTI JOIN {table.sql} t ON t.id = s.id AND t.valid_to IS NULL"
    ).collect()


def cdc(table: HandTable, file: Path) -> None:
    """The last event of each key, then one MERGE."""
    columns = [name for name in table.batch(file).columns if name != "op"]
    updates = ", ".join(f"t.{name} = s.{name}" for name in columns)
    table.spark.sql(
        f"MERGE INTO {table.sql} t USING (SELECT * FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY id ORDER BY lsn DESC) AS rank FROM {_BATCH}) WHERE rank = 1) s ON t.id = s.id "
        "WHEN MATCHED AND s.op = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT ({', '.join(columns)}) "
        f"VALUES ({', '.join(f's.{name}' for name in columns)})"
    ).collect()


def append(table: HandTable, file: Path) -> None:
    table.batch(file).write.format("delta").mode("append").save(str(table.path))


def replace_day(table: HandTable, file: Path) -> None:
    frame = table.batch(file)
    [[day]] = frame.select("day").limit(1).collect()
    writer = frame.write.format("delta").mode("overwrite").option("replaceWhere", f"day = {day}")
    writer.save(str(table.path))
