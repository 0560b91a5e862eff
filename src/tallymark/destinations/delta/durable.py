"""Makes commits of a local Delta table durable: Delta itself leaves its files in the memory of the system,
and a power loss takes the newest of them.

1. The files that the commit added: data, deletion vectors, changes, and Hadoop's checksum beside each.
2. The commit in the log, with the checkpoint that Delta may have written after it.
3. The folders that hold their names; for a new table also those above it.
"""

from __future__ import annotations

import json
from base64 import b85decode
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from tallymark.destinations.delta.log import commit_file
from tallymark.destinations.durable import sync_files, sync_new_folder

_FILE_ACTIONS = ("add", "cdc")
_UUID_LENGTH = 20  # of the end of a deletion vector's name, in Z85
_PYTHON = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FROM_Z85 = str.maketrans(_Z85, _PYTHON)


def make_durable(folder: Path, versions: Sequence[int], *, log_only: Iterable[int] = ()) -> None:
    """Raises OSError if the disk refuses: then nobody may say that these commits are there to stay."""
    sync_files(_with_checksums(file for version in versions for file in files_of_commit(folder, version)))
    in_log = [commit_file(folder, version) for version in log_only]
    in_log += [file for version in versions for file in _log_files(folder, version)]
    sync_files(_with_checksums(in_log))
    if 0 in versions:
        sync_new_folder(folder)


def files_of_commit(folder: Path, version: int) -> Iterator[Path]:
    """What the commit added to the table's folder; nothing if the log no longer has it."""
    try:
        lines = commit_file(folder, version).open(encoding="utf-8")
    except FileNotFoundError:
        return
    with lines:
        for line in lines:
            action = json.loads(line) if line.strip() else {}
            for kind in _FILE_ACTIONS:
                if kind in action:
                    yield from _inside(folder, action[kind]["path"])
                    yield from _deletion_vector(folder, action[kind].get("deletionVector"))


def _inside(folder: Path, path: str) -> Iterator[Path]:
    """A clone names files of another table by their URL, which was written before."""
    if not urlsplit(path).scheme:
        yield folder / unquote(path)


def _deletion_vector(folder: Path, vector: dict[str, Any] | None) -> Iterator[Path]:
    if vector is None or vector.get("storageType") != "u":  # others are in the log itself, or of a clone
        return
    prefix, name = vector["pathOrInlineDv"][:-_UUID_LENGTH], vector["pathOrInlineDv"][-_UUID_LENGTH:]
    uuid = UUID(bytes=b85decode(name.translate(_FROM_Z85)))
    yield folder / prefix / f"deletion_vector_{uuid}.bin"


def _log_files(folder: Path, version: int) -> Iterator[Path]:
    log = folder / "_delta_log"
    yield from log.glob(f"{version:020}.*")
    yield log / "_last_checkpoint"


def _with_checksums(files: Iterable[Path]) -> Iterator[Path]:
    """With one that is older than its file, Hadoop refuses to read the file."""
    for file in files:
        yield file
        if (checksum := file.with_name(f".{file.name}.crc")).is_file():
            yield checksum
