"""A look into a Delta log without Spark, where the log is a folder of this machine."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from urllib.parse import unquote, urlsplit


def restored_since(table_path: str, version: int) -> bool:
    """Whether a commit after this version is a RESTORE, or the table is no longer there. False for logs that
    are elsewhere, or do not reach that far."""
    folder = _local(table_path)
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


def _local(table_path: str) -> Path | None:
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
