"""One virtual environment per peer, so that no peer's dependencies meet another's, or Tallymark's.

They live in `.bench/envs/<peer>` and are made again only when `requirements/<peer>.txt` has changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "requirements"
ENVIRONMENTS = ROOT / ".bench" / "envs"
UV = ROOT / ".uv" / "bin" / "uv"
INSTALL_LIMIT_SECONDS = 900


class PeerMissing(Exception):
    """The peer cannot be measured here; the message says why."""


def python_of(peer: str) -> Path:
    """The interpreter of the peer's environment, which is made first if need be."""
    requirements = REQUIREMENTS / f"{peer}.txt"
    if not requirements.exists():
        raise PeerMissing(f"{peer} has no {requirements.name} in {requirements.parent}")
    folder = ENVIRONMENTS / peer
    python = folder / "bin" / "python"
    made_from = folder / "made-from"
    wanted = f"{sys.version}\n{hashlib.sha256(requirements.read_bytes()).hexdigest()}\n"
    if python.exists() and made_from.exists() and made_from.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for command in commands_that_make(folder, python, requirements):
        run(peer, command)
    made_from.write_text(wanted)  # last: half an environment is never taken for a whole one
    return python


def commands_that_make(folder: Path, python: Path, requirements: Path) -> list[list[str]]:
    if UV.exists():
        return [
            [str(UV), "venv", "--quiet", "--python", sys.executable, str(folder)],
            [str(UV), "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements)],
        ]
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)],
    ]


def run(peer: str, command: list[str]) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_LIMIT_SECONDS,
            env=clean_environment(),
        )
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"{peer} was not installed within {INSTALL_LIMIT_SECONDS} s") from None
    except (subprocess.CalledProcessError, OSError) as error:
        output = str(getattr(error, "output", None) or error).strip()
        raise PeerMissing(f"{peer} cannot be installed: {output.splitlines()[-1]}") from error


def clean_environment() -> dict[str, str]:
    """Without what would let this environment's packages into the peer's."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT"}
    }
