"""Loads of a scenario in this process, on the tests' Spark, with the seams watched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from crash.scenarios import Scenario
from crash.seams import Hook, Point, watched_job, watched_spark
from tallymark.config.load_project import load_project
from tallymark.flow.job import Job, RunContext, pipeline_job
from tallymark.flow.lease import holder_name
from tallymark.flow.run import run_pipeline
from tallymark.flow.select import select_pipelines
from tallymark.ledger import open_ledger
from tallymark.model.report import Outcome, PipelineReport
from tallymark.spark import Sessions


def unwatched(point: Point) -> None:
    """The hook of an ordinary load."""


@dataclass
class Loads:
    """Every run's ledger is an hour ahead of the run before, so that nobody waits for a lease to run out."""

    scenario: Scenario
    sessions: Sessions
    ahead: timedelta = timedelta()
    jump: timedelta = timedelta()  # of every clock, from one moment to the next

    def run(
        self,
        hook: Hook = unwatched,
        *,
        work: Callable[[Job], PipelineReport] = run_pipeline,
        spark_too: bool = True,
    ) -> PipelineReport:
        """Of the scenario's only pipeline. Spark is watched for the whole process: by one run at a time."""
        self.ahead += timedelta(hours=1)
        moment = self.ahead
        project = load_project(self.scenario.root)
        [pipeline] = select_pipelines(project, [])
        watches_spark = spark_too and hook is not unwatched
        with open_ledger(self.scenario.ledger_url, clock=lambda: self._now() + moment) as ledger:
            run_id = ledger.start_run(project.name, "run", host="crash", pid=0)
            job = pipeline_job(
                project,
                pipeline,
                ledger=ledger,
                sessions=self.sessions,
                run=RunContext(run_id, holder_name(), self._now, lambda event: None),
                options={},
            )
            with watched_spark(hook) if watches_spark else nullcontext():
                return work(watched_job(job, hook))

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.jump

    def finish(self, tries: int = 4) -> PipelineReport:
        """Runs until nothing is left to do: whoever meets a late commit leaves the rest to the next run."""
        for _ in range(tries):
            report = self.run()
            if report.outcome is Outcome.NOTHING_NEW:
                break
        assert report.outcome is Outcome.NOTHING_NEW, report.failures
        return report


def codes(report: PipelineReport) -> list[str]:
    return [failure.code for failure in report.failures]
