"""Discover: which files are new, what their content is, and which must wait.

1. list every glob, 2. leave what is still being written, 3. hash what the ledger does not know,
4. look again at what was hashed: a file that changed meanwhile waits for the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Literal

from pyspark.sql import SparkSession

from tallymark.config.pipeline import SourceConfig, StabilityConfig
from tallymark.errors import FileChanged, UnreadableFile
from tallymark.model.batch import FileStat, SourceFile
from tallymark.sources.locations import is_local
from tallymark.sources.stores import FileStore, Progress, store_for, stores_of

_CHEAP_TO_HASH = 16 << 20


@dataclass(frozen=True)
class Found:
    files: tuple[SourceFile, ...]  # new or changed, in the configured order
    listed: int
    listed_paths: frozenset[str]
    waiting: tuple[tuple[str, str], ...]  # path, why it is left for the next run
    unreadable: tuple[UnreadableFile, ...]


def discover(
    source: SourceConfig,
    root: Path,
    known: Mapping[str, SourceFile],
    spark: Callable[[], SparkSession],
    *,
    now: datetime,
    on_progress: Progress | None = None,
) -> Found:
    """A file whose path, size and modification time are in `known` is not hashed again."""
    listed: dict[str, tuple[FileStore, FileStat]] = {}
    for glob in [source.files] if isinstance(source.files, str) else source.files:
        listed |= _list(glob, root, spark)
    waiting: dict[str, str] = {}
    unreadable: list[UnreadableFile] = []
    fresh: dict[str, tuple[FileStore, FileStat]] = {}
    for path, (store, file) in listed.items():
        if path in known and known[path].stat == file:
            continue
        if why := _still_written(file, source.stability, now):
            waiting[path] = why
        elif problem := _bad_name(file):
            unreadable.append(problem)
        else:
            fresh[path] = (store, file)
    files: list[SourceFile] = []
    for outcome in _hash(fresh, on_progress):
        match outcome:
            case SourceFile():
                files.append(outcome)
            case UnreadableFile():
                unreadable.append(outcome)
            case (path, why):
                waiting[path] = why
    return Found(
        files=tuple(order_files(files, source.order)),
        listed=len(listed),
        listed_paths=frozenset(listed),
        waiting=tuple(sorted(waiting.items())),
        unreadable=tuple(unreadable),
    )


def recheck(files: Sequence[SourceFile], root: Path, spark: Callable[[], SparkSession]) -> None:
    """Raises FileChanged when a file is no longer what was hashed. Small local files are hashed again:
    a rewrite within the clock's grain keeps size and time."""
    expected = {file.path: file for file in files if not file.path.startswith("quarantine:")}
    for store, paths in stores_of(expected, spark):
        found = store.stat(paths)
        for path in paths:
            if path not in found:
                raise FileChanged(path, "it disappeared")
            if found[path] != expected[path].stat:
                raise FileChanged(path, "it changed")
        small = [found[path] for path in paths if is_local(path) and found[path].size < _CHEAP_TO_HASH]
        for path, content_hash in store.hash(small).items():
            if content_hash != expected[path].content_hash:
                raise FileChanged(path, "it changed")


def order_files(files: Iterable[SourceFile], order: Literal["name", "modified"]) -> list[SourceFile]:
    """By name means by the whole path, character by character: `10.csv` comes before `9.csv`."""
    if order == "name":
        return sorted(files, key=lambda file: file.path)
    return sorted(files, key=lambda file: (file.modified_ns, file.path))


def _list(glob: str, root: Path, spark: Callable[[], SparkSession]) -> dict[str, tuple[FileStore, FileStat]]:
    store, absolute = store_for(glob, root, spark)
    files = store.list(absolute)
    if not files and (mistake := store.why_nothing(absolute)):
        raise mistake
    return {file.path: (store, file) for file in files}


def _still_written(file: FileStat, stability: StabilityConfig, now: datetime) -> str | None:
    name = PurePosixPath(file.path).name
    for suffix in stability.ignore_suffixes:
        if name.endswith(suffix):
            return f"its name ends in {suffix}"
    if stability.min_age_seconds == 0:  # then clocks that disagree hold up nothing
        return None
    age_seconds = now.timestamp() - file.modified_ns / 1e9
    if age_seconds < stability.min_age_seconds:
        return f"modified less than {stability.min_age_seconds:g} s ago"
    return None


def _bad_name(file: FileStat) -> UnreadableFile | None:
    """Names that Hadoop's file systems cannot open."""
    try:
        file.path.encode()
    except UnicodeEncodeError:
        printable = file.path.encode(errors="backslashreplace").decode()
        return UnreadableFile(printable, "its name is not valid UTF-8", hint="rename the file")
    if ":" in PurePosixPath(file.path).name:
        return UnreadableFile(
            file.path, "Spark cannot read a file with a colon in its name", hint="rename the file"
        )
    return None


Outcome = SourceFile | UnreadableFile | tuple[str, str]


def _hash(fresh: Mapping[str, tuple[FileStore, FileStat]], on_progress: Progress | None) -> Iterator[Outcome]:
    by_store: dict[type, tuple[FileStore, list[FileStat]]] = {}
    for store, file in fresh.values():
        by_store.setdefault(type(store), (store, []))[1].append(file)
    for store, files in by_store.values():
        hashes = store.hash(files, on_progress)
        after = store.stat([file.path for file in files])
        for file in files:
            content_hash = hashes[file.path]
            if file.path not in after:
                yield file.path, "it disappeared while it was read"
            elif after[file.path] != file:
                yield file.path, "it changed while it was read"
            elif isinstance(content_hash, UnreadableFile):
                yield content_hash
            else:
                yield SourceFile(file.path, file.size, file.modified_ns, content_hash)
