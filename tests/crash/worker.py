"""Processes that load a project and are killed. All of them use the one JVM of the process that starts them:
a kill then costs a second instead of fifteen, and leaves the dead client's statement running in Spark, so that
a commit may land after the death of its worker. That is nastier than losing the JVM too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from pyspark.sql import SparkSession

# Imported once, before the processes are forked.
import duckdb  # noqa: F401  isort: skip
import psycopg  # noqa: F401  isort: skip
import pyarrow  # noqa: F401  isort: skip

from crash.seams import (
    BEFORE,
    DURING,
    At,
    Hook,
    Point,
    Trace,
    kill_self,
    kill_soon,
    one_after_the_other,
    watched_job,
    watched_spark,
)
from shared_spark import Door, Jvm
from tallymark.config.load_project import load_project
from tallymark.destinations.registry import spark_needs
from tallymark.flow.job import RunContext, pipeline_job
from tallymark.flow.lease import holder_name
from tallymark.flow.run import run_pipeline, run_side_by_side
from tallymark.flow.select import select_pipelines
from tallymark.ledger import open_ledger
from tallymark.model.report import Outcome
from tallymark.spark import Sessions

# In the environment, so that all processes of a test run have the same.
SEED = int(os.environ.setdefault("TALLYMARK_SEED", str(random.randrange(10**6))))
DONE = (Outcome.LOADED, Outcome.NOTHING_NEW)


@dataclass(frozen=True)
class Order:
    """What a worker shall do: run these pipelines (all when none), and die at the nth passing of a point.
    A point that is `during` a step is so many seconds after its begin."""

    root: Path
    pipelines: tuple[str, ...] = ()
    die_at: Point | None = None
    nth: int = 1
    seconds: float = 0
    parallel: int = 1
    watched: bool = True


@dataclass(frozen=True)
class Ended:
    exit_code: int
    outcomes: dict[str, str] = field(default_factory=dict)  # pipeline → outcome
    failures: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()  # that it passed, in order

    @property
    def killed(self) -> bool:
        return self.exit_code == -signal.SIGKILL

    @property
    def done(self) -> bool:
        return self.exit_code == 0 and all(outcome in DONE for outcome in self.outcomes.values())


class Workshop:
    """Starts workers. They are forked from a process that has imported everything and started nothing."""

    def __init__(self, spark: SparkSession):
        self._spark = spark
        self._doors: dict[ForkServerProcess, Door] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["crash.worker"])

    def start(self, order: Order) -> ForkServerProcess:
        door = Door(self._spark)
        process = self._context.Process(target=_work, args=(order, door.jvm), daemon=True)
        with _import_path():
            process.start()
        self._doors[process] = door
        return process

    def wait(self, process: ForkServerProcess, order: Order, seconds: float = 600) -> Ended:
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"a worker did not end within {seconds} seconds: {order}")
        self._doors.pop(process).shut()
        points = _points(_trace(order.root, process.pid))
        said = _answer(order.root, process.pid)
        if process.exitcode != 0 or not said.exists():
            return Ended(process.exitcode, points=points)
        told = json.loads(said.read_text())
        said.unlink()
        return Ended(0, told["outcomes"], tuple(told["failures"]), points)

    def run(self, order: Order) -> Ended:
        return self.wait(self.start(order), order)

    def run_killing_after(self, order: Order, seconds: float) -> Ended:
        process = self.start(order)
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
        return self.wait(process, order)

    def finish(self, root: Path, tries: int = 8) -> Ended:
        """Runs until nothing is left to do. Several runs may be needed: a dead worker's statement can still
        be at work, and whoever meets its commit stops and leaves the rest to the next run."""
        ended = self.run(Order(root))
        for _ in range(tries - 1):
            if ended.done:
                break
            time.sleep(0.5)
            ended = self.run(Order(root))
        return ended


def _answer(root: Path, pid: int | None) -> Path:
    return root / f".answer-{pid}.json"


def _trace(root: Path, pid: int | None) -> Path:
    return root / f".trace-{pid}"


def _points(trace: Path) -> tuple[Point, ...]:
    if not trace.exists():
        return ()
    text = trace.read_text()
    trace.unlink()
    return tuple(Point.parse(line) for line in text.splitlines())


@contextmanager
def _import_path() -> Iterator[None]:
    """The server of forks is started with the first process, and must find this module."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _work(order: Order, jvm: Jvm) -> None:
    log = os.open(order.root / "worker.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if order.watched:
        hook = _hook(order)
        with watched_spark(hook):
            ended = _load(order, jvm, hook)
    else:
        ended = _load(order, jvm, lambda point: None)
    text = json.dumps({"outcomes": ended.outcomes, "failures": ended.failures})
    _answer(order.root, os.getpid()).write_text(text)
    os._exit(ended.exit_code)


def _hook(order: Order) -> Hook:
    trace = Trace(os.open(_trace(order.root, os.getpid()), os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    match order.die_at:
        case None:
            return trace
        case Point(step, when) if when == DURING:
            return one_after_the_other(trace, At(Point(step, BEFORE), kill_soon(order.seconds), order.nth))
        case point:
            return one_after_the_other(trace, At(point, kill_self, order.nth))


def _load(order: Order, jvm: Jvm, hook: Hook) -> Ended:
    project = load_project(order.root)
    sessions: list[Sessions] = []

    def isolated(on_progress: Callable[[str], None] | None = None) -> SparkSession:
        if not sessions:
            sessions.append(Sessions.of(jvm.attach(), spark_needs()))
        return sessions[0].isolated(on_progress)

    ledger = open_ledger(project.ledger_url)
    run_id = ledger.start_run(project.name, "run", host="crash", pid=os.getpid())
    run = RunContext(run_id, holder_name(), lambda: datetime.now(UTC), lambda event: None)
    jobs = [
        watched_job(
            pipeline_job(
                project,
                pipeline,
                ledger=ledger,
                sessions=_Lazily(isolated),  # type: ignore[arg-type]
                run=run,
                options={},
            ),
            hook,
        )
        for pipeline in select_pipelines(project, order.pipelines)
    ]
    reports = run_side_by_side(jobs, run_pipeline, order.parallel)
    return Ended(
        0,
        {report.pipeline: str(report.outcome) for report in reports},
        tuple(f"{f.code} {f.message}" for report in reports for f in report.failures),
    )


@dataclass(frozen=True)
class _Lazily:
    """Attaches when Spark is first asked for, as the product starts it."""

    isolated: Callable[..., SparkSession]

    def share_files(self) -> bool:
        return True
