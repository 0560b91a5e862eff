"""One Spark for all sides that are Spark: ours as Tallymark starts it; for what is written by hand, sessions
with Spark's and Delta's own defaults or with Tallymark's settings."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tallymark.destinations.registry import spark_needs
from tallymark.spark import Sessions
from tallymark.spark.launch_settings import SparkConfig

# What Tallymark's embedded Spark sets, as it is without being set.
_DEFAULTS = {
    "spark.sql.shuffle.partitions": "200",
    "spark.databricks.delta.snapshotPartitions": "50",
    "spark.sql.files.openCostInBytes": str(4 << 20),
    "spark.sql.codegen.hugeMethodLimit": "65535",
    "spark.sql.parquet.outputTimestampType": "INT96",
}


@dataclass(frozen=True)
class Engine:
    ours: SparkSession
    by_hand: SparkSession  # default settings

    def on_our_settings(self) -> SparkSession:
        """For one side alone: what a recipe sets must not help another."""
        session = self.ours.newSession()
        for name in _DEFAULTS:
            if (value := self.ours.conf.get(name, None)) is not None:
                session.conf.set(name, value)
        session.conf.set("spark.sql.session.timeZone", "UTC")
        return session

    def jobs_so_far(self) -> int:
        ids = self.ours.sparkContext.statusTracker().getJobIdsForGroup(None)
        return max(ids, default=-1) + 1


def start_engine(memory: str, scratch: Path | None = None) -> Engine:
    home = scratch or Path(tempfile.mkdtemp(prefix="tallymark-bench-"))
    config = SparkConfig(conf={"spark.driver.memory": memory})
    ours = Sessions(config, spark_needs(), home=home).isolated()
    by_hand = ours.newSession()
    for name, value in _DEFAULTS.items():
        by_hand.conf.set(name, value)
    by_hand.conf.set("spark.sql.session.timeZone", "UTC")
    return Engine(ours, by_hand)
