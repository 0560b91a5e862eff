"""Warm-up: loads a few rows of each format into tables of a throw-away project, so that the class archive
holds the classes that a load needs."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import SparkSession

from tallymark.config.load_project import LoadedProject, load_project
from tallymark.config.pipeline_folders import PROJECT_FILE
from tallymark.errors import RuntimeUnavailable
from tallymark.flow.job import RunContext, pipeline_job
from tallymark.flow.lease import holder_name
from tallymark.flow.run import run_pipeline
from tallymark.ledger import Ledger, open_ledger
from tallymark.model.report import PipelineReport
from tallymark.spark import Sessions

_FORMATS = ("csv", "ndjson", "parquet")
_DAYS = 3  # the first load creates its table, later ones merge into it


def load_samples(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory(prefix="tallymark-") as folder:
        project = _throw_away_project(Path(folder))
        sessions = Sessions.of(spark, project.spark_needs)
        with open_ledger(project.ledger_url) as ledger:
            for day in range(_DAYS):
                _deliver(project.root, day)
                for report in _run_all(project, ledger, sessions):
                    for failure in report.failures:
                        raise RuntimeUnavailable(
                            f"the warm-up load failed: {failure.code} {failure.message}", hint=failure.hint
                        )


def _throw_away_project(root: Path) -> LoadedProject:
    (root / PROJECT_FILE).write_text("name: warm_up\n")
    for kind in _FORMATS:
        pipeline = root / "pipelines" / kind
        pipeline.mkdir(parents=True)
        (pipeline / "config.yaml").write_text(
            f"source: {{files: landing/*.{kind}}}\nmerge_strategy: upsert\nunique_key: [id]\n"
        )
    return load_project(root)


def _run_all(project: LoadedProject, ledger: Ledger, sessions: Sessions) -> list[PipelineReport]:
    run_id = ledger.start_run(project.name, "prepare", host="", pid=0)
    return [
        run_pipeline(
            pipeline_job(
                project,
                pipeline,
                ledger=ledger,
                sessions=sessions,
                run=RunContext(run_id, holder_name(), lambda: datetime.now(UTC), lambda event: None),
                options={},
            )
        )
        for pipeline in project.pipelines.values()
    ]


def _deliver(root: Path, day: int) -> None:
    rows = [{"id": number + day, "name": f"name {number}", "amount": day / 2} for number in range(3)]
    table = pa.Table.from_pylist(rows)
    (root / "landing").mkdir(exist_ok=True)
    csv, ndjson, parquet = (root / "landing" / f"{day}.{kind}" for kind in _FORMATS)
    pyarrow.csv.write_csv(table, csv)
    ndjson.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(table, parquet)
