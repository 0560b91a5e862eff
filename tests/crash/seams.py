"""The places where a load meets the world, watched: ledger, destination, the SQL engine's session, Spark and
the job's events. Each call tells a hook before it happens and after it happened. These are the seams that the
product is built with; nothing in it knows that it is watched.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2
from pyspark.sql.session import SparkSession

from tallymark.destinations.warehouse.destination import WarehouseDestination
from tallymark.flow.job import Job
from tallymark.model.report import Event

BEFORE, DURING, AFTER = "before", "during", "after"

# Answers of the destination that it gives without asking anybody: nothing can go wrong there.
_NOT_A_STEP = {"column_type", "obstacle_to_create"}
_MARKER_TABLES = {"_tallymark_applied": " of markers", "_tallymark_fence": " of the fence"}


@dataclass(frozen=True, order=True)
class Point:
    step: str  # such as `ledger.commit_batch`, `session.execute INSERT of markers`, `spark.save`
    when: str

    def __str__(self) -> str:
        return f"{self.when} {self.step}"

    @classmethod
    def parse(cls, text: str) -> Point:
        when, _, step = text.partition(" ")
        return cls(step, when)


Hook = Callable[[Point], None]


@dataclass
class Recorder:
    """Lists the points of a run in the order in which they were reached."""

    points: list[Point] = field(default_factory=list)

    def __call__(self, point: Point) -> None:
        self.points.append(point)

    @property
    def distinct(self) -> list[Point]:
        return list(dict.fromkeys(self.points))


@dataclass
class At:
    """Acts when a point is reached for the nth time; with `for_ever`, every time from then on.

    At AFTER, an action that raises is a lost answer: the call was done, and its caller sees an error.
    """

    point: Point
    act: Callable[[], None]
    nth: int = 1
    for_ever: bool = False
    reached: Counter[Point] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, point: Point) -> None:
        if point != self.point:
            return
        with self.lock:
            self.reached[point] += 1
            times = self.reached[point]
        if times == self.nth or (self.for_ever and times > self.nth):
            self.act()


@dataclass
class AtCount:
    """Acts at the nth point of all that a run reaches, whatever it is."""

    nth: int
    act: Callable[[], None]
    reached: int = 0

    def __call__(self, point: Point) -> None:
        self.reached += 1
        if self.reached == self.nth:
            self.act()


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_soon(seconds: float) -> Callable[[], None]:
    """The call that follows is under way when its process dies; what it asked of others goes on."""

    def act() -> None:
        timer = threading.Timer(seconds, kill_self)
        timer.daemon = True
        timer.start()

    return act


@dataclass(frozen=True)
class Trace:
    """Writes each point down before it is acted on, so that the dead can be asked how far they came."""

    descriptor: int

    def __call__(self, point: Point) -> None:
        os.write(self.descriptor, f"{point}\n".encode())


def one_after_the_other(*hooks: Hook) -> Hook:
    def hook(point: Point) -> None:
        for each in hooks:
            each(point)

    return hook


def raising(error: Callable[[], BaseException]) -> Callable[[], None]:
    def act() -> None:
        raise error()

    return act


def watched_job(job: Job, hook: Hook) -> Job:
    """The same job, with every seam watched except Spark's, which is `watched_spark`."""

    def on_event(event: Event) -> None:
        hook(Point(f"event.{event.step}", BEFORE))
        job.run.on_event(event)

    opens = job.connections.open_destination
    return replace(
        job,
        ledger=Watched(job.ledger, "ledger", hook),  # type: ignore[arg-type]
        connections=replace(
            job.connections, open_destination=lambda spark: watched_destination(opens(spark), hook)
        ),
        run=replace(job.run, on_event=on_event),
    )


def watched_destination(destination: Any, hook: Hook) -> Any:
    if isinstance(destination, WarehouseDestination):
        destination = WarehouseDestination(_WatchedEngine(destination._engine, hook))

    return _WatchedDestination(destination, hook)


class Watched:
    """Stands in for an object: its methods are steps. `opens` names the methods that give a context manager,
    and says what becomes of the value that it gives."""

    def __init__(
        self, real: Any, name: str, hook: Hook, opens: dict[str, Callable[[Any], Any]] | None = None
    ):
        self._real = real
        self._name = name
        self._hook = hook
        self._opens = opens or {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value) or name in _NOT_A_STEP or name.startswith("_"):
            return value
        if name in self._opens:
            return self._opening(f"{self._name}.{name}", value, self._opens[name])

        def called(*args: Any, **kwargs: Any) -> Any:
            step = f"{self._name}.{name}{_detail(args)}"
            self._hook(Point(step, BEFORE))
            answer = value(*args, **kwargs)
            self._hook(Point(step, AFTER))
            return answer

        return called

    def _opening(
        self, step: str, opener: Callable[..., AbstractContextManager[Any]], dress: Callable[[Any], Any]
    ) -> Callable[..., AbstractContextManager[Any]]:
        @contextmanager
        def opened(*args: Any, **kwargs: Any) -> Iterator[Any]:
            self._hook(Point(step, BEFORE))
            with opener(*args, **kwargs) as value:
                self._hook(Point(step, AFTER))
                yield dress(value)
                self._hook(Point(f"{step} end", BEFORE))
            self._hook(Point(f"{step} end", AFTER))

        return opened


class _WatchedDestination:
    """Only what its tables do are steps."""

    def __init__(self, destination: Any, hook: Hook):
        self._destination = destination
        self._hook = hook

    def table(self, name: str) -> Watched:
        opens = {"prepare": lambda made: Watched(made, "prepared", self._hook)}
        return Watched(self._destination.table(name), "destination", self._hook, opens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._destination, name)


class _WatchedEngine:
    """Only its sessions are steps: everything else that an engine answers is about names and types."""

    def __init__(self, engine: Any, hook: Hook):
        self._engine = engine
        self.session = Watched(
            engine, "engine", hook, opens={"session": lambda made: Watched(made, "session", hook)}
        ).session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@contextmanager
def watched_spark(hook: Hook) -> Iterator[None]:
    """What Spark is asked to do in this process: a Delta commit is one of these calls."""
    inside = threading.local()

    def watch(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        real = getattr(owner, name)

        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "call", False):  # Spark's methods use each other
                return real(self, *args, **kwargs)
            step = f"spark.{name}{_detail(args) if name == 'sql' else ''}"
            inside.call = True
            try:
                hook(Point(step, BEFORE))
                answer = real(self, *args, **kwargs)
                hook(Point(step, AFTER))
            finally:
                inside.call = False
            return answer

        patch.setattr(owner, name, called)

    with pytest.MonkeyPatch.context() as patch:
        watch(patch, SparkSession, "sql")
        watch(patch, DataFrameWriter, "save")
        for write in ("append", "overwrite", "overwritePartitions"):
            watch(patch, DataFrameWriterV2, write)
        for action in ("collect", "count", "toArrow"):
            watch(patch, DataFrame, action)
        yield


def _detail(args: tuple[Any, ...]) -> str:
    """The verb of a statement, so that an INSERT and a COMMIT are two steps."""
    if not args or not isinstance(args[0], str) or " " not in args[0].strip():
        return ""
    verb = args[0].split()[0].upper()
    tables = (said for name, said in _MARKER_TABLES.items() if name in args[0])
    return f" {verb}{next(tables, '')}"
