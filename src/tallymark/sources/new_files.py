"""Discover: which files are new, what their content is, and which must wait.

1. list     every glob, a block of files at a time. Nothing is kept of files that are known, so that neither
            memory nor time grows with what was loaded before
2. skip     files that are still being written
3. hash     files that the ledger does not know
4. recheck  what was hashed: a file that changed meanwhile waits for the next run
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tallymark.config.pipeline_file import SourceConfig, StabilityConfig
from tallymark.errors import FileChanged, UnreadableFile
from tallymark.model.batch import FileStat, SourceFile
from tallymark.sources.stores import FileStore, Progress, is_local, store_for, stores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Known = Callable[[Sequence[str]], Collection[FileStat]]  # what the ledger has of these paths, or of more

_Outcome = SourceFile | UnreadableFile | tuple[str, str]  # the last: path, and why it waits

_CHEAP_TO_HASH = 16 << 20
_BLOCK = 5000  # listed files that are held, and looked up in the ledger, at a time


@dataclass(frozen=True)
class Found:
    files: tuple[SourceFile, ...]  # new or changed, in the configured order
    listed: int
    vanished: frozenset[str]  # watched paths that are not listed
    waiting: tuple[tuple[str, str], ...]  # path, and why it waits for the next run
    unreadable: tuple[UnreadableFile, ...]


def discover(
    source: SourceConfig,
    root: Path,
    known: Known,
    spark: Callable[[], SparkSession],
    *,
    now: datetime,
    watched: Collection[str] = (),
    on_progress: Progress | None = None,
) -> Found:
    """A file whose path, size and modification time are known is not hashed again. `watched` paths that are
    not listed have vanished."""
    listed = 0
    vanished = set(watched)
    waiting: dict[str, str] = {}
    unreadable: list[UnreadableFile] = []
    fresh: dict[str, tuple[FileStore, FileStat]] = {}
    for store, block in _blocks(source, root, spark):
        listed += len(block)
        vanished.difference_update(file.path for file in block)
        known_files = known([file.path for file in block if _is_text(file.path)])
        for file in block:
            if file in known_files:
                continue
            if why := _still_written(file, source.stability, now):
                waiting[file.path] = why
            elif problem := _bad_name(file):
                unreadable.append(problem)
            else:
                fresh[file.path] = (store, file)
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
        listed=listed,
        vanished=frozenset(vanished),
        waiting=tuple(sorted(waiting.items())),
        unreadable=tuple(sorted(unreadable, key=lambda error: error.path)),
    )


def nothing_known(paths: Sequence[str]) -> Collection[FileStat]:
    return ()


def recheck(files: Sequence[SourceFile], root: Path, spark: Callable[[], SparkSession]) -> None:
    """Raises FileChanged if a file is no longer what was hashed. Small local files are hashed again, because
    a rewrite within the resolution of the clock keeps size and time."""
    expected = {file.path: file for file in files}
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


def still_there(paths: Collection[str], spark: Callable[[], SparkSession]) -> set[str]:
    """Those of the paths at which there is a file now."""
    return {path for store, some in stores_of(paths, spark) for path in store.stat(some)}


def order_files(files: Iterable[SourceFile], order: Literal["name", "modified"]) -> list[SourceFile]:
    """By name means by the whole path, character by character: `10.csv` comes before `9.csv`."""
    if order == "name":
        return sorted(files, key=lambda file: file.path)
    return sorted(files, key=lambda file: (file.modified_ns, file.path))


def _blocks(
    source: SourceConfig, root: Path, spark: Callable[[], SparkSession]
) -> Iterator[tuple[FileStore, list[FileStat]]]:
    """Everything that is listed, each file once."""
    globs = [source.files] if isinstance(source.files, str) else source.files
    seen: set[str] = set()
    for glob in globs:
        store, absolute = store_for(glob, root, spark)
        files = iter(store.list(absolute))
        listed_any = False
        while block := list(islice(files, _BLOCK)):
            listed_any = True
            if len(globs) > 1:  # several may list the same file
                block = [file for file in block if file.path not in seen]
                seen.update(file.path for file in block)
            yield store, block
        if not listed_any and (mistake := store.why_nothing(absolute)):
            raise mistake


def _still_written(file: FileStat, stability: StabilityConfig, now: datetime) -> str | None:
    name = _name(file)
    for suffix in stability.ignore_suffixes:
        if name.endswith(suffix):
            return f"its name ends in {suffix}"
    if stability.min_age_seconds == 0:  # then clocks that disagree do no harm
        return None
    age_seconds = now.timestamp() - file.modified_ns / 1e9
    if age_seconds < stability.min_age_seconds:
        return f"modified less than {stability.min_age_seconds:g} s ago"
    return None


def _bad_name(file: FileStat) -> UnreadableFile | None:
    """A problem if Hadoop's file systems cannot open a file of this name."""
    if not _is_text(file.path):
        printable = file.path.encode(errors="backslashreplace").decode()
        return UnreadableFile(printable, "its name is not valid UTF-8", hint="rename the file")
    if ":" in _name(file):
        return UnreadableFile(
            file.path, "Spark cannot read a file with a colon in its name", hint="rename the file"
        )
    return None


def _is_text(path: str) -> bool:
    """False for a name that is not valid UTF-8: no database stores it, and no query can ask for it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name(file: FileStat) -> str:
    return file.path.rpartition("/")[2]


def _hash(
    fresh: Mapping[str, tuple[FileStore, FileStat]], on_progress: Progress | None
) -> Iterator[_Outcome]:
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
