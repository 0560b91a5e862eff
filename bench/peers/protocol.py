"""What every peer script shares: its arguments, the clock, and the one JSON document that it prints.

Only the standard library: each peer runs in an environment of its own, and none of them has Tallymark.

1. Whatever a tool prints is sent to stderr: stdout carries the result and nothing else.
2. `fill` loads the first rows of the table. Not timed.
3. `apply` is called once per batch, in turn, and timed: from a file on disk to a committed table.
4. `totals` reads the table back. Not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO


@dataclass(frozen=True)
class Task:
    work: Path
    start: list[Path]
    batches: list[Path]
    key: str
    url: str
    destination: str


@dataclass(frozen=True)
class Totals:
    rows: int
    checksum: int  # the sum of amount_cents


class Peer(Protocol):
    version: str

    def fill(self, files: list[Path]) -> None: ...
    def apply(self, batch: Path) -> None: ...
    def totals(self) -> Totals: ...


def measure(
    name: str,
    open_peer: Callable[[Task], Peer],
    destinations: Sequence[str] = (),
    arguments: Sequence[str] | None = None,
) -> None:
    """The whole of a peer script. `destinations` are the choices of `--destination`, if there are any."""
    task = task_from(arguments, destinations)
    result_stream = keep_stdout_for_the_result()
    peer = open_peer(task)
    peer.fill(task.start)
    seconds = [timed(peer, batch) for batch in task.batches]
    totals = peer.totals()
    result = {
        "peer": name,
        "version": peer.version,
        "seconds": seconds,
        "rows": totals.rows,
        "checksum": totals.checksum,
        "peak_memory_mib": peak_memory_mib(),
    }
    with result_stream:
        result_stream.write(json.dumps(result) + "\n")


def task_from(arguments: Sequence[str] | None, destinations: Sequence[str]) -> Task:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for scratch data")
    parser.add_argument("--start", type=Path, required=True, help="a folder of Parquet files: the first rows")
    parser.add_argument("--batches", type=Path, nargs="+", required=True, help="Parquet or CSV files")
    parser.add_argument("--key", default="id")
    parser.add_argument("--url", default="", help="of the database, for peers that need one")
    parser.add_argument("--destination", choices=destinations, required=bool(destinations), default="")
    parsed = parser.parse_args(arguments)
    start = sorted(parsed.start.resolve().glob("*.parquet"))
    if not start:
        parser.error(f"--start {parsed.start} holds no Parquet files")
    return Task(
        work=parsed.work.resolve(),
        start=start,
        batches=[batch.resolve(strict=True) for batch in parsed.batches],
        key=parsed.key,
        url=parsed.url,
        destination=parsed.destination,
    )


def keep_stdout_for_the_result() -> TextIO:
    """Below Python's own `sys.stdout`: libraries written in C or Rust print to the descriptor itself."""
    sys.stdout.flush()
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def timed(peer: Peer, batch: Path) -> float:
    started = time.perf_counter()
    peer.apply(batch)
    return time.perf_counter() - started


def peak_memory_mib() -> float:
    """Of this process. On Linux, `getrusage` begins with the peak of the process that started this one
    (the kernel carries it over an exec), so the kernel's mark of this program's own memory goes first."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
