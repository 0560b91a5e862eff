"""What stderr shows while a command works: its progress and, with `--verbose`, its log."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from tallymark.cli.screen import clean, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tallymark.model.report import Event

OnEvent = Callable[["Event"], None]

_QUERY_LOG = "DataFrameQueryContextLogger"


@contextmanager
def shown(verbose: bool) -> Iterator[OnEvent]:
    """A bar per pipeline on a terminal, a line per step elsewhere. With `--verbose` there are lines only: log
    lines would break up the bars."""
    if verbose or not is_terminal(sys.stderr):
        yield StepLines(sys.stderr)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", style="dim", markup=False),
    )
    console = Console(file=sys.stderr, highlight=False)
    with Progress(*columns, console=console, transient=True) as progress:
        yield LiveBars(progress)


class StepLines:
    """Takes events from several threads. A counted step gets two lines: its first and its last."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        finished = event.done is not None and event.done == event.total
        with self._lock:
            if self._last.get(event.pipeline) == event.step and event.done is not None and not finished:
                return
            self._last[event.pipeline] = event.step
            count = f" ({event.done} of {event.total})" if event.total else ""
            self._stream.write(clean(f"{event.pipeline or 'spark'}: {event.text}{count}") + "\n")
            self._stream.flush()


class LiveBars:
    """Takes events from several threads."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, event: Event) -> None:
        name = event.pipeline or "spark"
        with self._lock:
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(clean(name), total=None, text="")
            task = self._tasks[name]
        self._progress.update(task, total=event.total, completed=event.done or 0, text=clean(event.text))


@contextmanager
def logged(verbose: bool) -> Iterator[None]:
    """Sends the log of `tallymark.*` to stderr if `verbose`. Otherwise it is silent, because the reports
    repeat its warnings. PySpark's log of failed queries is pages of JSON and adds nothing to our errors."""
    logger = logging.getLogger("tallymark")
    level = logger.level
    logging.getLogger(_QUERY_LOG).setLevel(logging.ERROR if verbose else logging.CRITICAL + 1)
    handler: logging.Handler = logging.NullHandler()
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_CleanFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _CleanFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))
