"""Rows that depend on nothing but their id and version, so that every side gets the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

ROWS_PER_FILE = 500_000
_WIDE = 8  # columns that every table has


def rows(ids: DataFrame, version: int, columns: int = _WIDE) -> DataFrame:
    """`ids` has the column id."""
    chance = f"xxhash64(id, {version})"
    more = [
        f"CAST(pmod(xxhash64(id, {version}, {number}), 1000) AS int) AS extra_{number}"
        for number in range(columns - _WIDE)
    ]
    return ids.selectExpr(
        "id",
        "id % 100003 AS customer",
        f"element_at(array('new', 'paid', 'sent', 'closed'), CAST(pmod({chance}, 4) AS int) + 1) AS status",
        f"pmod({chance}, 1000000) AS amount_cents",
        f"CAST(pmod({chance}, 100000) AS double) / 7 AS price",
        f"concat('note ', hex({chance})) AS note",
        f"timestamp_seconds(1700000000 + {version} * 86400 + pmod(id, 86400)) AS updated_at",
        f"pmod({chance}, 2) = 0 AS flag",
        *more,
    )


def start_rows(spark: SparkSession, number: int, columns: int = _WIDE) -> DataFrame:
    """In the order of their ids, as tables that grow by time are."""
    ids = spark.range(0, number, 1, max(2, number // ROWS_PER_FILE)).toDF("id")
    return rows(ids, 0, columns)


@dataclass(frozen=True)
class Batches:
    """Half of the rows of a batch have ids that the table knows, half are new."""

    spark: SparkSession
    folder: Path
    table_rows: int
    batch_rows: int
    recent: bool = False  # known ids from the table's last twentieth only
    known: float = 0.5  # share of the rows whose ids the table knows
    columns: int = _WIDE
    extra: str = ""  # more columns, as SQL over id and `n`

    def file(self, number: int) -> Path:
        known, new = self.sizes
        reach = max(self.table_rows // 20 if self.recent else self.table_rows, known)
        step = max(1, reach // max(1, known))
        first = self.table_rows - reach
        offset = (number * 7 + 3) % step
        ids = self.spark.range(known).selectExpr(f"{first} + (id * {step} + {offset}) % {reach} AS id")
        fresh = self.spark.range(new).selectExpr(f"{self.table_rows} + {number} * {new} + id AS id")
        frame = rows(ids.unionAll(fresh), number + 1, self.columns)
        if self.extra:
            frame = frame.selectExpr("*", *self.extra.replace("{number}", str(number)).split(";"))
        return one_file(frame, self.folder / f"batch-{number}")

    @property
    def sizes(self) -> tuple[int, int]:
        known = int(self.batch_rows * self.known)
        return known, self.batch_rows - known


def one_file(frame: DataFrame, folder: Path, how: str = "parquet") -> Path:
    writer = frame.coalesce(1).write.mode("overwrite").format(how)
    if how == "csv":
        writer = writer.option("header", "true").option("timestampFormat", "yyyy-MM-dd HH:mm:ss")
    writer.save(str(folder))
    [file] = folder.glob(f"part-*.{how}")
    return file
