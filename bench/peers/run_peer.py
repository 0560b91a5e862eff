"""Runs one peer in its own environment and its own process, and reads its result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.environments import PeerMissing, clean_environment, python_of

SCRIPTS = Path(__file__).parent


@dataclass(frozen=True)
class PeerResult:
    """What a peer did, or in `not_measured` why there is nothing to show."""

    peer: str
    version: str = ""
    seconds: tuple[float, ...] = ()
    rows: int = 0
    checksum: int = 0
    peak_memory_mib: float = 0.0
    not_measured: str = ""


def run_peer(
    peer: str,
    work: Path,
    start: Path,
    batches: Sequence[Path],
    *,
    key: str = "id",
    url: str = "",
    destination: str = "",
    limit_seconds: float = 600,
) -> PeerResult:
    """`peer` is the name of a script in this folder. Its environment is made first: that is outside the
    limit, which holds for the filling of the table and all batches together."""
    try:
        python = python_of(peer)
    except PeerMissing as missing:
        return PeerResult(peer, not_measured=str(missing))
    work.mkdir(parents=True, exist_ok=True)
    arguments = ["--work", str(work), "--start", str(start), "--key", key]
    arguments += ["--batches", *(str(batch) for batch in batches)]
    arguments += ["--url", url] if url else []
    arguments += ["--destination", destination] if destination else []
    return run_script(peer, [str(python), str(SCRIPTS / f"{peer}.py"), *arguments], work, limit_seconds)


def run_script(peer: str, command: list[str], work: Path, limit_seconds: float) -> PeerResult:
    with subprocess.Popen(
        command,
        cwd=work,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, complaints = process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            return PeerResult(peer, not_measured=f"over {limit_seconds:g} s")
        finally:
            stop_all(process.pid)
    if process.returncode != 0:
        return PeerResult(peer, not_measured=f"failed: {last_line(complaints)}")
    try:
        result = json.loads(output)
        return PeerResult(**{**result, "seconds": tuple(result["seconds"])})
    except (ValueError, TypeError, KeyError) as error:
        return PeerResult(peer, not_measured=f"its result cannot be read: {error!r}")


def stop_all(group: int) -> None:
    """The peer and all that it has started: a worker left behind would slow down what is measured next."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
