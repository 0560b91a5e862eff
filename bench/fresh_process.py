"""What a load costs who starts a process for it: from exec to exit, and the third load of a process.

Each run starts from a copy of the table as it was, loads three files and ends. One load from exec to exit is
what the run takes until its first load is done, and what it takes to end after its last.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import Timed

LOADS = 3


@dataclass(frozen=True)
class FreshSide:
    """What the process is told: `load` names a function of by_hand, or is empty for Tallymark."""

    name: str
    table: Path
    start: Path  # a copy of the table before any load
    load: str
    on_our_settings: bool
    settings: Mapping[str, Any]  # of tm.merge


@dataclass(frozen=True)
class FreshTimes:
    exec_to_exit: Timed
    third_load: Timed


def measure_fresh(
    sides: Sequence[FreshSide],
    files: Sequence[Path],
    repetitions: int,
    memory: str,
    digest: Callable[[Path], object],
) -> dict[str, FreshTimes]:
    """In turn, one process at a time. Raises AssertionError if the tables differ at the end."""
    runs: dict[str, list[_Run]] = {side.name: [] for side in sides}
    for repetition in range(repetitions):
        turn = repetition % len(sides)
        for side in [*sides[turn:], *sides[:turn]]:
            shutil.rmtree(side.table, ignore_errors=True)
            shutil.copytree(side.start, side.table)
            runs[side.name].append(_run(side, files[:LOADS], memory))
    tables = {side.name: digest(side.table) for side in sides}
    if len(set(tables.values())) > 1:
        raise AssertionError(f"the sides did not do the same job: {tables}")
    return {
        name: FreshTimes(
            Timed(tuple(run.exec_to_exit for run in found), processor=tuple(run.first_used for run in found)),
            Timed(tuple(run.third_load for run in found), processor=tuple(run.third_used for run in found)),
        )
        for name, found in runs.items()
    }


@dataclass(frozen=True)
class _Run:
    exec_to_exit: float
    first_used: float  # processor seconds
    third_load: float
    third_used: float


def _run(side: FreshSide, files: Sequence[Path], memory: str) -> _Run:
    task = {
        "table": str(side.table),
        "files": [str(file) for file in files],
        "load": side.load,
        "on_our_settings": side.on_our_settings,
        "settings": dict(side.settings),
        "memory": memory,
    }
    script = Path(__file__).with_name("three_loads.py")
    began = time.time()
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(task)], capture_output=True, text=True, check=False
    )
    ended = time.time()
    if done.returncode != 0:
        raise AssertionError(f"{side.name} failed: {done.stderr[-2000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    first, second, third = said["ended"]
    return _Run(
        (first - began) + (ended - third),
        said["used"][0],
        third - second,
        said["used"][2] - said["used"][1],
    )
