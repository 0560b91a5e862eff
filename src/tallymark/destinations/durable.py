"""What is written survives a power loss only once the file and its name in the folder are on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

# Windows flushes only what is open for writing; elsewhere the file may belong to another user.
_FLUSHABLE = os.O_RDWR if os.name == "nt" else os.O_RDONLY
_AT_ONCE = 8  # disks flush several files in hardly more time than one


def sync_files(files: Iterable[Path]) -> None:
    """Files first, then the folders that hold their names. A file that is gone by now needs nothing."""
    found = list(dict.fromkeys(files))
    if len(found) > 1:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sync") as pool:
            list(pool.map(sync_file, found))
    elif found:
        sync_file(found[0])
    for folder in dict.fromkeys(file.parent for file in found):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes new names in this folder durable. Windows does so by itself."""
    if os.name != "nt":
        with suppress(FileNotFoundError):
            _sync(folder, os.O_RDONLY)


def sync_new_folder(folder: Path) -> None:
    """Also its own name, and those of the folders above it: any of them may be as new. Those that this user
    may not open are not new."""
    sync_folder(folder)
    for above in folder.absolute().parents:
        with suppress(OSError):
            sync_folder(above)


def sync_file(file: Path) -> None:
    with suppress(FileNotFoundError):
        _sync(file, _FLUSHABLE)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
