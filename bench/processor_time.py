"""Processor time of a process and all that it started. On a shared machine it says more than a clock."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(root: int | None = None) -> float:
    """Of the living descendants and of those that ended and were waited for. 0 where /proc is missing."""
    found = _processes()
    children: dict[int, list[int]] = {}
    for process, (parent, _) in found.items():
        children.setdefault(parent, []).append(process)
    waiting, total = [root or os.getpid()], 0.0
    while waiting:
        process = waiting.pop()
        total += found.get(process, (0, 0.0))[1]
        waiting += children.get(process, [])
    return total


def _processes() -> dict[int, tuple[int, float]]:
    """Each process with its parent and its seconds."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has ended
            continue
        fields = text.rpartition(")")[2].split()  # the name before it may hold blanks
        found[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
    return found
