"""The place of a database that is one file."""

from __future__ import annotations

from pathlib import Path

from tallymark.errors import DestinationError


def refuse_no_place(path: str) -> None:
    """A database in a file is made where there is none, but its folder is not."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise DestinationError(f"{path}: there is no folder {folder}", hint="create the folder first")
    if Path(path).is_dir():
        raise DestinationError(
            f"{path}: is a folder, not a database file",
            hint=f"set `path` to a file, such as {Path(path).name}/shop.db; it is made if it is not there",
        )
