"""Deliveries A, B, A: the state that returns is applied once, on every destination, from real files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from conformance.bench import Bench
from tallymark.config.pipeline_file import ColumnConfig, SourceConfig
from tallymark.flow.job import Connections, Job, RunContext, Task
from tallymark.flow.run import run_pipeline
from tallymark.ledger import Ledger
from tallymark.ledger.ledger import temporary_ledger
from tallymark.model.receipt import Receipt
from tallymark.model.report import PipelineReport
from tallymark.model.settings import MergeSettings, Strategy

SETTINGS = MergeSettings(Strategy.FULL_MERGE, ("id",), max_delete_fraction=1.0)
A, B = "id,name\n1,a\n2,a\n", "id,name\n1,b\n"
pytestmark = pytest.mark.slow_on("delta", "duckdb")


def load(bench: Bench, ledger: Ledger, folder: Path) -> PipelineReport:
    task = Task(
        pipeline="states",
        table=bench.table,
        settings=SETTINGS,
        source=SourceConfig(files=f"{folder}/*.csv"),
        rules=(ColumnConfig(name="id", type="int"), ColumnConfig(name="name", type="string")),
        root=folder,
        provenance=False,
    )
    connections = Connections(
        bench.table, lambda: bench.spark, lambda _: bench.destination, (str(folder / "quarantine"),)
    )
    run = RunContext(
        ledger.start_run("test", "run", host="", pid=0), "test", lambda: datetime.now(UTC), lambda _: None
    )
    report = run_pipeline(Job(task, ledger, connections, run))
    assert report.failures == ()
    return report


def test_a_state_that_returns(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    with temporary_ledger() as ledger:
        for number, content in enumerate((A, B, A, A), start=1):
            (folder / f"{number}.csv").write_text(content)
            load(bench, ledger, folder)
        found = [(r.inserted, r.updated, r.deleted) for r in receipts(ledger, bench)]
    assert found == [(2, 0, 0), (0, 1, 1), (1, 1, 0)]
    with temporary_ledger() as another:
        again = load(bench, another, folder)
        assert (again.receipts, len(again.recovered)) == ((), 3)
    assert sorted((row["id"], row["name"]) for row in bench.rows()) == [(1, "a"), (2, "a")]


def receipts(ledger: Ledger, bench: Bench) -> list[Receipt]:
    return [record.receipt for record in ledger.committed_batches(bench.target.key) if record.receipt]
