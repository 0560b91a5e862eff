"""Loads a few rows of each kind into tables that are thrown away: what Spark needs for that, Java has met."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import SparkSession

from tallymark.flow import direct
from tallymark.spark import Sessions


def load_a_little(spark: SparkSession) -> None:
    sessions = Sessions.of(spark)
    with tempfile.TemporaryDirectory(prefix="tallymark-") as scratch:
        for day in range(3):
            for source in _deliver(Path(scratch), day):
                table = Path(scratch) / "tables" / source.suffix[1:]
                task = direct.task(source, table, {"strategy": "upsert", "unique_key": "id"})
                direct.merge(task, sessions, None, None)


def _deliver(folder: Path, day: int) -> list[Path]:
    rows = [{"id": number + day, "name": f"name {number}", "amount": day / 2} for number in range(3)]
    table = pa.Table.from_pylist(rows)
    csv, ndjson, parquet = (folder / f"{day}.{kind}" for kind in ("csv", "ndjson", "parquet"))
    pyarrow.csv.write_csv(table, csv)
    ndjson.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(table, parquet)
    return [csv, ndjson, parquet]
