"""Where files are: listing, hashing and looking at them without knowing their format.

`LocalStore` is plain Python and never starts Spark. Every other file system is Spark's (`hadoop.py`).
"""

from __future__ import annotations

import difflib
import hashlib
import os
import stat as modes
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import FileStat
from tallymark.sources import globs
from tallymark.sources.locations import has_scheme, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
_THREADS = 8


class FileStore(Protocol):
    def list(self, glob: str) -> Iterable[FileStat]:
        """Regular, visible files, each once, in any order. Raises SourceError for a folder that cannot be
        listed."""

    def why_nothing(self, glob: str) -> SourceError | None:
        """For a glob that lists nothing: the mistake in it, or None when files simply have not come."""

    def hash(
        self, files: Sequence[FileStat], on_progress: Progress | None = None
    ) -> dict[str, str | UnreadableFile]:
        """SHA-256 of the bytes. A file that cannot be read gives its error, the others their hash."""

    def head(self, paths: Sequence[str], size: int) -> dict[str, bytes]:
        """The first bytes. Raises UnreadableFile."""

    def stat(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """Missing files are left out."""


def store_for(glob: str, root: Path, spark: Callable[[], SparkSession]) -> tuple[FileStore, str]:
    """The store, and the glob made absolute. Spark is only asked for when the store needs it."""
    if glob.startswith("file:/"):
        glob = "/" + glob.removeprefix("file:").lstrip("/")
    elif has_scheme(glob):
        from tallymark.sources.hadoop import HadoopStore

        return HadoopStore(spark()), glob
    return LocalStore(), _absolute(glob, root)


def stores_of(
    paths: Iterable[str], spark: Callable[[], SparkSession]
) -> Iterator[tuple[FileStore, list[str]]]:
    """Known paths, split by the store that holds them."""
    known = list(paths)
    local = [path for path in known if is_local(path)]
    if local:
        yield LocalStore(), local
    if len(local) < len(known):
        from tallymark.sources.hadoop import HadoopStore

        yield HadoopStore(spark()), [path for path in known if not is_local(path)]


class LocalStore:
    def list(self, glob: str) -> Iterator[FileStat]:
        if (literal := _regular(glob)) and not globs.is_hidden(Path(glob).name):
            return iter([literal])  # a name with glob characters in it, given as it is
        patterns = [globs.split_fixed(pattern) for pattern in globs.expand_braces(glob)]
        files = chain.from_iterable(_walk(folder, parts) for folder, parts in patterns)
        meets_once = len(patterns) == 1 and patterns[0][1].count("**") <= 1
        return files if meets_once else _each_once(files)

    def why_nothing(self, glob: str) -> SourceError | None:
        reasons = [_why_nothing(glob, pattern) for pattern in globs.expand_braces(glob)]
        return None if None in reasons else reasons[0]

    def hash(
        self, files: Sequence[FileStat], on_progress: Progress | None = None
    ) -> dict[str, str | UnreadableFile]:
        hashes: dict[str, str | UnreadableFile] = {}
        with ThreadPoolExecutor(_THREADS) as pool:
            for file, result in zip(files, pool.map(_hash, (file.path for file in files)), strict=True):
                hashes[file.path] = result
                if on_progress:
                    on_progress(len(hashes), len(files))
        return hashes

    def head(self, paths: Sequence[str], size: int) -> dict[str, bytes]:
        with ThreadPoolExecutor(_THREADS) as pool:
            return dict(zip(paths, pool.map(lambda path: _head(path, size), paths), strict=True))

    def stat(self, paths: Sequence[str]) -> dict[str, FileStat]:
        with ThreadPoolExecutor(_THREADS) as pool:
            return {path: file for path, file in zip(paths, pool.map(_regular, paths), strict=True) if file}


def _absolute(glob: str, root: Path) -> str:
    return os.path.normpath(Path(os.path.abspath(root)) / glob)  # noqa: PTH100 (keeps symbolic links)


def _each_once(files: Iterable[FileStat]) -> Iterator[FileStat]:
    seen: set[str] = set()
    for file in files:
        if file.path not in seen:
            seen.add(file.path)
            yield file


def _walk(folder: str, parts: list[str]) -> Iterator[FileStat]:
    part, below = parts[0], parts[1:]
    if part == "**":
        yield from _walk(folder, below or ["*"])
        for entry in _entries(folder):
            # Links are not followed here: a link to a parent folder would go round for ever.
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, parts)
        return
    matches = globs.part_regex(part).fullmatch
    for entry in _entries(folder):
        if not matches(entry.name):
            continue
        if below:
            if entry.is_dir():
                yield from _walk(entry.path, below)
        elif file := _regular(entry.path):
            yield file


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """One after the other: a landing zone may hold a million."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not globs.is_hidden(entry.name):
                    yield entry
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SourceError(
            f"{folder}: the folder cannot be listed: {error.strerror}",
            hint="give this user the right to read the folder",
            facts={"path": folder},
        ) from error


def _regular(path: str) -> FileStat | None:
    """None for what is absent, a folder, a pipe, a socket or a dangling link."""
    try:
        found = os.stat(path)  # noqa: PTH116 (10,000 Path objects would cost more than the calls)
    except (OSError, ValueError):
        return None
    return FileStat(path, found.st_size, found.st_mtime_ns) if modes.S_ISREG(found.st_mode) else None


def _open(path: str) -> BufferedReader:
    """Never waits: a pipe that took the place of a file since it was listed would block for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not modes.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is not a regular file")
    return os.fdopen(handle, "rb")


def _hash(path: str) -> str | UnreadableFile:
    try:
        with _open(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        return _unreadable(path, error)


def _head(path: str, size: int) -> bytes:
    try:
        with _open(path) as stream:
            return stream.read(size)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> UnreadableFile:
    hint = "give this user the right to read the file" if isinstance(error, PermissionError) else ""
    return UnreadableFile(path, f"cannot be read: {error.strerror}", hint=hint)


def _why_nothing(glob: str, pattern: str) -> SourceError | None:
    folder, parts = globs.split_fixed(pattern)
    facts = {"glob": glob, "folder": folder}
    if not Path(folder).is_dir():
        return SourceError(
            f"source.files: {glob} matches nothing: the folder {folder} does not exist",
            hint=_nearest(Path(folder)),
            facts=facts,
        )
    if len(parts) == 1 and not globs.is_magic(parts[0]):
        if (Path(folder) / parts[0]).is_dir():
            return is_a_folder(glob, facts)
        if globs.is_hidden(parts[0]):
            return SourceError(
                f"source.files: {glob}: names that begin with . or _ are hidden from Spark",
                hint="rename the file",
                facts=facts,
            )
    elif len(parts) == 1 and parts[0] != "**":
        folders = [entry for entry in _entries(folder) if globs.part_regex(parts[0]).fullmatch(entry.name)]
        if folders and all(entry.is_dir() for entry in folders):
            return is_a_folder(glob, facts)
    return None


def is_a_folder(glob: str, facts: dict[str, str]) -> SourceError:
    return SourceError(
        f"source.files: {glob} matches only a folder, not files",
        hint=f"to take the files in it, write {glob.rstrip('/')}/*",
        facts=facts,
    )


def _nearest(folder: Path) -> str:
    """Names the first part of the path that does not exist and what lies beside it."""
    missing = folder
    while not missing.parent.is_dir() and missing.parent != missing:
        missing = missing.parent
    try:
        beside = [entry.name for entry in missing.parent.iterdir() if entry.is_dir()]
    except OSError:
        beside = []
    close = difflib.get_close_matches(missing.name, beside, n=1, cutoff=0.5)
    if close:
        return f"did you mean {missing.parent / close[0]}?"
    return f"{missing.parent} has no folder {missing.name}: create it, or correct source.files"
