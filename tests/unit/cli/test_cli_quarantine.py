"""Listing and showing the quarantine of a project: without Spark where its files are here."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tallymark.checks.quarantine import Quarantine
from tallymark.config.load_project import load_project
from tallymark.flow.bad_rows import BadRows
from tallymark.ledger import open_ledger
from tallymark.model.batch import Batch, Files
from tallymark.model.documents import json_value
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.report import Event
from tallymark.project import Project
from tallymark.spark import Sessions

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
CONFIG = """
source: {files: landing/*.csv, format: csv}
columns: [{name: id, type: bigint}, {name: note, required: true}]
merge_strategy: upsert
unique_key: id
quarantine: {max_fraction: 1.0}
"""
PROGRAM = """
import sys
from tallymark.cli.main import main
code = main(sys.argv[1:])
sys.exit("PySpark was imported" if "pyspark" in sys.modules else code)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "tallymark.yaml").write_text("name: shop\n")
    (tmp_path / "pipelines" / "silver" / "orders").mkdir(parents=True)
    (tmp_path / "pipelines" / "silver" / "orders" / "config.yaml").write_text(CONFIG)
    (tmp_path / "landing").mkdir()
    return tmp_path


def remember(shop: Path, *batch_ids: str) -> None:
    """Records these batches as committed, as recovery does."""
    with open_ledger(f"sqlite:///{shop}/.tallymark/ledger.db") as ledger:
        for number, batch_id in enumerate(batch_ids, 1):
            batch = Batch(batch_id, "silver.orders", "lake:orders", Files(()), number, NOON)
            receipt = Receipt(batch_id, "silver.orders", "orders", "upsert", Counts(), "1", number, NOON)
            ledger.adopt("silver.orders", "lake:orders", batch, receipt)


def without_spark(shop: Path, *words: str, told: str = "") -> Any:
    """The result of the command, in a process that must not import PySpark, let alone start Java."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--json", "--project", str(shop), "quarantine", *words],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert told in done.stderr.decode() and bool(told) == bool(done.stderr)
    return json.loads(done.stdout)["result"]


def read_alike(shop: Path, spark: SparkSession, rows: int) -> None:
    with open_ledger(f"sqlite:///{shop}/.tallymark/ledger.db") as ledger:
        by_spark = BadRows(ledger, Quarantine(spark, *load_project(shop).quarantine_roots))
        assert without_spark(shop, "list") == json_value(by_spark.summaries(None))
        shown = without_spark(shop, "show", "silver.orders")
        assert shown == json_value(by_spark.rows("silver.orders"))
    assert len(shown) == rows


def test_list_and_show_start_no_spark(shop: Path) -> None:
    """On the quarantine of one batch, written by hand."""
    folder = shop / "warehouse" / "_tallymark" / "quarantine" / "silver.orders"
    (folder / "_delta_log").mkdir(parents=True)
    names = ("id", "pipeline", "batch_id", "file", "column", "reason", "raw")
    rows = [{name: f"{name} {row}" for name in names} for row in (2, 1)]
    more = [{"file_order": 0, "row": row, "quarantined_at": NOON} for row in (2, 1)]
    table = pa.Table.from_pylist([one | other for one, other in zip(rows, more, strict=True)])
    parquet.write_table(table, folder / "part one.parquet")
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "0", "partitionColumns": [], "configuration": {}}},
        {"add": {"path": "part%20one.parquet", "partitionValues": {}, "size": 1, "dataChange": True}},
    ]
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    assert without_spark(shop, "list", told="does not know") == []
    remember(shop, "batch_id 1", "batch_id 2")
    assert [row["row"] for row in without_spark(shop, "show", "silver.orders")] == [1, 2]
    assert without_spark(shop, "list")[0] == {
        "pipeline": "silver.orders",
        "batch_id": "batch_id 1",
        "rows": 1,
        "files": 1,
        "reasons": {"reason 1": 1},
        "quarantined_at": "2026-11-01T12:00:00+00:00",
    }


@pytest.mark.slow
def test_spark_and_files_agree_through_replays_and_drops(shop: Path, spark: SparkSession) -> None:
    assert without_spark(shop, "list") == without_spark(shop, "show", "silver.orders") == []
    (shop / "landing" / "1.csv").write_text("id,note\n1,new\nx,new\n2,\n")
    with Project(shop, spark=spark) as project:
        project.run()
        (shop / "landing" / "2.csv").write_text("id,note\n3,\n4,new\n")
        project.run()
        read_alike(shop, spark, rows=3)
        config = shop / "pipelines" / "silver" / "orders" / "config.yaml"
        config.write_text(CONFIG.replace(", required: true", ""))
    with Project(shop, spark=spark) as project:
        project.quarantine_replay("silver.orders")
        read_alike(shop, spark, rows=1)
        [left] = project.quarantine_show("silver.orders")
        assert project.quarantine_drop("silver.orders", left.batch_id, [left.id]) == 1
        assert without_spark(shop, "list") == project.quarantine_list() == []


class OnlySpark:
    """Stands for a quarantine that Spark reads."""

    def pipelines(self) -> list[str]:
        return []


@pytest.mark.parametrize("path", ["s3a://bucket/quarantine", "quarantine"])
def test_spark_is_announced_where_it_is_needed(
    path: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "tallymark.yaml").write_text(f"name: shop\nquarantine_path: {path}\n")
    events: list[Event] = []
    monkeypatch.setattr("tallymark.project._quarantine", lambda configuration: OnlySpark())
    monkeypatch.setattr(Sessions, "share_files", lambda sessions: path.startswith("s3a"))
    with Project(shop, on_event=events.append) as project:
        assert project.quarantine_list() == []
    assert events[0].text.startswith("reading the quarantine needs Spark: ")
    assert path in events[0].text
