"""A run with nothing new stays cheap, however much was loaded before."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from tallymark.config.pipeline_file import SourceConfig
from tallymark.flow.discover import discover
from tallymark.flow.job import Connections, Job, RunContext, Task
from tallymark.flow.run import run_pipeline
from tallymark.ledger import Ledger, open_ledger
from tallymark.ledger.database import CHUNK
from tallymark.model.batch import Batch, Files, SourceFile
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.report import Outcome
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.sources import new_files as discovery
from unit.flow.shop import Shop

PIPELINE, TABLE = "silver.orders", "memory:orders"
MOMENT = datetime(2026, 11, 1, tzinfo=UTC)

# A run in a process of its own, which tells what it has imported and started.
RUN = """
import json, sys
started = []
sys.addaudithook(lambda event, args: started.append(str(args[1])) if event == "subprocess.Popen" else None)
from tallymark.cli.main import main
code = main(["run", "--project", sys.argv[1]])
heavy = {"pyspark", "py4j", "alembic"}
print(json.dumps({"code": code, "started": started, "imported": sorted(heavy & set(sys.modules))}))
"""


class NoPlace:
    """A table that is asked for nothing but its name."""

    def key(self, table: str) -> str:
        return TABLE

    def was_rolled_back(self, table: str, last: Receipt) -> bool:
        return False


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.fixture
def job(tmp_path: Path, ledger: Ledger) -> Job:
    task = Task(
        PIPELINE,
        "orders",
        MergeSettings(strategy=Strategy.APPEND_ONLY),
        SourceConfig(files="landing/*/*.csv"),
        root=tmp_path,
    )
    connections = Connections("orders", no_spark, lambda spark: no_spark(), (), locator=NoPlace())
    run_id = ledger.start_run("shop", "run", host="", pid=1)
    return Job(task, ledger, connections, RunContext(run_id, "test", lambda: MOMENT, lambda event: None))


def land(root: Path, numbers: range) -> None:
    for number in numbers:
        folder = root / f"landing/day={number // 1000}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        (folder / f"orders_{number:08}.csv").write_bytes(b"id\n%d\n" % number)


def load_all(job: Job) -> None:
    """As if: everything that lies there is in the table, and the ledger knows it."""
    discover(job)
    waiting = [entry.content for entry in job.ledger.waiting_contents(PIPELINE)]
    files = tuple(content for content in waiting if isinstance(content, SourceFile))
    sequence = job.ledger.last_sequence(TABLE) + 1
    batch = Batch(f"batch-{sequence}", PIPELINE, TABLE, Files(files), sequence, MOMENT)
    receipt = Receipt(batch.id, PIPELINE, "orders", "append_only", Counts(), "1", sequence, MOMENT)
    job.ledger.adopt(PIPELINE, TABLE, batch, receipt)


def statements_of_a_run(job: Job) -> int:
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            seen.append(statement)

    engine = job.ledger._database._engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        assert run_pipeline(job).outcome is Outcome.NOTHING_NEW
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    return len(seen)


def test_the_statements_of_a_run_with_nothing_new(job: Job, tmp_path: Path) -> None:
    """One for each CHUNK of listed files, and a few more: never one for each file."""
    land(tmp_path, range(CHUNK))
    load_all(job)
    few = statements_of_a_run(job)
    assert few <= 8
    land(tmp_path, range(1000, 1000 + 3 * CHUNK))
    load_all(job)
    assert statements_of_a_run(job) == few + 3


def test_known_files_that_were_moved_away_cost_nothing(job: Job, tmp_path: Path) -> None:
    land(tmp_path, range(3 * CHUNK))
    load_all(job)
    (tmp_path / "landing").rename(tmp_path / "away")
    land(tmp_path, range(5000, 5010))
    load_all(job)
    assert len(job.ledger.known_files(PIPELINE)) == 3 * CHUNK + 10
    away = statements_of_a_run(job)
    (tmp_path / "away").rename(tmp_path / "landing/sub")  # which no glob sees
    assert statements_of_a_run(job) == away


@pytest.mark.slow
def test_memory_does_not_grow_with_what_is_known(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 known files would take 2 MB and more as their names and times alone."""
    monkeypatch.setattr(discovery, "_BLOCK", CHUNK)
    land(tmp_path, range(10_000))
    load_all(job)
    discover(job)  # what is made once is made
    tracemalloc.start()
    try:
        assert discover(job).report.listed == 10_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize(
    "destination", ["delta", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("sqlite", "duckdb"))]
)
def test_a_run_with_nothing_new_imports_no_spark(
    destination: str, tmp_path: Path, spark: SparkSession
) -> None:
    if destination != "delta":
        config = (
            f"destinations: {{db: {{type: {destination}, path: shop.db}}}}\ndefaults: {{destination: db}}\n"
        )
    (tmp_path / "tallymark.yaml").write_text("" if destination == "delta" else config)
    shop = Shop(tmp_path, spark)
    shop.pipeline("silver.orders", "source: {files: landing/orders/*}\nmerge_strategy: append_only\n")
    shop.drop("orders/1.csv", "id\n1\n")
    assert shop.load().outcome is Outcome.LOADED
    words = [sys.executable, "-c", RUN, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert "nothing new" in done.stdout
    assert told == {"code": 0, "started": [], "imported": []}, done.stderr
