"""A look into a Delta log without Spark, where the log is a folder of this machine."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from itertools import count
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tallymark.errors import DestinationError

COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(?:json|parquet)")
_BOOKKEEPING = {"commitInfo", "txn"}  # actions that say nothing about rows, columns or properties


def restored_since(table_path: str, version: int) -> bool:
    """Whether a commit after this version is a RESTORE, or the table is no longer there. False for logs that
    are elsewhere, or do not reach that far."""
    folder = local_folder(table_path)
    if folder is None:
        return False
    log = folder / "_delta_log"
    if not log.is_dir():
        return folder.parent.is_dir()  # not when a whole disk is away
    for later in count(version + 1):
        commit = log / f"{later:020}.json"
        if not commit.is_file():
            return False
        if _is_restore(commit):
            return True
    return False


def latest_version(folder: Path) -> int | None:
    """Of the table in this folder; None when there is none. Clean-up may leave nothing of the last commit but
    its checkpoint."""
    try:
        names = [entry.name for entry in (folder / "_delta_log").iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(folder, error) from error
    found = [COMMIT.fullmatch(name) or CHECKPOINT.fullmatch(name) for name in names]
    return max((int(match[1]) for match in found if match), default=None)


def latest_change(folder: Path) -> int | None:
    """The latest version without the commits after it that leave the table as it was: those of VACUUM, and of
    loads that found nothing to change."""
    version = latest_version(folder)
    while version and _changes_nothing(folder, version) and commit_file(folder, version - 1).is_file():
        version -= 1
    return version


def _changes_nothing(folder: Path, version: int) -> bool:
    try:
        with commit_file(folder, version).open(encoding="utf-8") as lines:
            return all(set(json.loads(line)) <= _BOOKKEEPING for line in lines if line.strip())
    except (OSError, ValueError):
        return False


def commit_file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"


def commit_digest(folder: Path, version: int) -> str | None:
    """What tells this commit from the one that has its number in another table of the same place. Without its
    file, its checkpoint must do, with the time it was written; None without both."""
    try:
        if commit_file(folder, version).is_file():
            return sha256(commit_file(folder, version).read_bytes()).hexdigest()
        parts = sorted((folder / "_delta_log").glob(f"{version:020}.checkpoint.*"))
        stats = [(part.name, part.stat().st_size, part.stat().st_mtime_ns) for part in parts]
    except OSError as error:
        raise _unreadable(folder, error) from error
    return sha256(repr(stats).encode()).hexdigest() if stats else None


def _unreadable(folder: Path, error: OSError) -> DestinationError:
    return DestinationError(
        f"{folder}: its Delta log cannot be read: {error}",
        hint="check that this user may read the table's folder and that its _delta_log is whole",
    )


def local_folder(table_path: str) -> Path | None:
    """None for a table that is elsewhere."""
    address = urlsplit(table_path)
    if address.scheme == "file":
        return Path(unquote(address.path))
    return Path(table_path) if not address.scheme else None


def _is_restore(commit: Path) -> bool:
    try:
        actions = [
            json.loads(line) for line in commit.read_text("utf-8").splitlines() if "commitInfo" in line
        ]
    except (OSError, ValueError):
        return False
    return any(action.get("commitInfo", {}).get("operation") == "RESTORE" for action in actions)
