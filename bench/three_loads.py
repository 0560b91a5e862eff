"""The process that fresh_process.py measures: starts Spark, loads three files, says when each was done."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processor_time import processor_seconds


def main(task: dict[str, Any]) -> None:
    load = _ours(task) if not task["load"] else _by_hand(task)
    ended, used = [], []
    for file in task["files"]:
        load(Path(file))
        ended.append(time.time())
        used.append(processor_seconds())
    print(json.dumps({"ended": ended, "used": used}))


def _ours(task: dict[str, Any]) -> Callable[[Path], object]:
    import tallymark as tm

    spark = _our_spark(task["memory"])
    return lambda file: tm.merge(file, task["table"], spark=spark, **task["settings"])


def _by_hand(task: dict[str, Any]) -> Callable[[Path], object]:
    import by_hand
    from tallymark.spark.frames import planned_for

    ours = task["on_our_settings"]
    spark = _our_spark(task["memory"]) if ours else _plain_spark(task["memory"])
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    table = by_hand.HandTable(spark, Path(task["table"]))
    write = getattr(by_hand, task["load"])

    def load(file: Path) -> None:
        if not ours:
            write(table, file)
            return
        with planned_for(spark, size_bytes=file.stat().st_size):
            write(table, file)

    return load


def _our_spark(memory: str) -> Any:
    from tallymark.destinations.registry import spark_needs
    from tallymark.spark import Sessions
    from tallymark.spark.launch_settings import SparkConfig

    home = Path(tempfile.mkdtemp(prefix="tallymark-bench-"))
    return Sessions(SparkConfig(conf={"spark.driver.memory": memory}), spark_needs(), home=home).isolated()


def _plain_spark(memory: str) -> Any:
    """As Delta's quick start has it."""
    from pyspark.sql import SparkSession

    from tallymark.destinations.registry import spark_needs

    delta = next(need for need in spark_needs() if any("delta" in name for name in need.extensions))
    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", memory)
    builder = builder.config("spark.jars.packages", ",".join(str(package) for package in delta.packages))
    builder = builder.config("spark.sql.extensions", ",".join(delta.extensions))
    builder = builder.config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    return builder.config("spark.ui.enabled", "false").getOrCreate()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
