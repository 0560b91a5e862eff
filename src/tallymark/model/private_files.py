"""Files of ours that hold rows, logs or the ledger are for their user alone, whatever the umask. What exists
is left as it is: somebody may have opened it to others on purpose. Files inside a table's folder follow that
folder, so that who reads the table can read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

FOLDER, FILE = 0o700, 0o600


def private_folder(folder: Path) -> Path:
    """Makes it, and those above it, where they are missing."""
    for missing in _missing(folder):
        _make(missing, FOLDER)
    return folder


def open_private(path: Path, mode: Literal["w", "x", "a"], *, errors: str | None = None) -> IO[str]:
    """The folder must be there. Text is written as it is given."""
    return open(path, mode, encoding="utf-8", errors=errors, newline="", opener=_private)


def make_private_file(path: Path) -> None:
    """An empty one, if there is none."""
    with suppress(FileExistsError):
        os.close(_private(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def _private(path: str | Path, flags: int) -> int:
    return os.open(path, flags, FILE)


@contextmanager
def made_private(folder: Path) -> Iterator[None]:
    """What others (Java, for example) make in the folder meanwhile."""
    private_folder(folder)
    before = set(folder.rglob("*"))
    try:
        yield
    finally:
        for made in set(folder.rglob("*")) - before:
            with suppress(OSError):  # gone again, or another user's
                made.chmod(FOLDER if made.is_dir() else FILE)


def folder_of_a_table(folder: Path) -> Path:
    """Makes it, and those above it, where they are missing, open to those to whom the table is."""
    for missing in _missing(folder):
        _make(missing, _mode(missing.parent))
    return folder


def open_as_table(path: Path) -> None:
    """Of a file in the folder of a table."""
    with suppress(OSError):  # the file may be another user's
        path.chmod(_mode(path.parent) & 0o666)


def _missing(folder: Path) -> list[Path]:
    """The outermost first."""
    return [one for one in (folder, *folder.parents) if not one.exists()][::-1]


def _make(folder: Path, mode: int) -> None:
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        folder.chmod(mode)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
