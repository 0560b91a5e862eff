"""Progress on stderr: a bar per pipeline on a terminal, a line per step elsewhere."""

from __future__ import annotations

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


@contextmanager
def shown(verbose: bool) -> Iterator[OnEvent]:
    """Log lines would tear a live display apart, so `--verbose` gets lines."""
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
    """Pipelines report from several threads. A counted step gives its first and its last line only."""

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
