"""Where files are: how their paths are spelled, which of them a glob means, and their hashes.

`LocalStore` is plain Python and never starts Spark. Every other file system is read through Spark
(`hadoop.py`). Nothing here knows a format.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat as modes
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import FileStat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
_THREADS = 8
# Characters that java.net.URI does not encode in a path, and so Spark in `_metadata.file_path`.
_NOT_ENCODED = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + "_-!.~'()*" + ":@&=+$,;/"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(.*)", re.DOTALL)
_MAGIC = re.compile(r"[*?\[\\]")
_HIDDEN = (".", "_")  # Spark never reads such files, and writers name unfinished files so


class FileStore(Protocol):
    def list(self, glob: str) -> Iterable[FileStat]:
        """Regular, visible files, each once, in any order. Raises SourceError if a folder cannot be
        listed."""

    def why_nothing(self, glob: str) -> SourceError | None:
        """The mistake in a glob that lists nothing; None if no files have arrived yet."""

    def hash(
        self, files: Sequence[FileStat], on_progress: Progress | None = None
    ) -> dict[str, str | UnreadableFile]:
        """SHA-256 of the bytes by path, or the error of a file that cannot be read."""

    def head(self, paths: Sequence[str], size: int) -> dict[str, bytes]:
        """The first bytes of each file. Raises UnreadableFile."""

    def stat(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """Size and modification time of each file; missing files are left out."""


def store_for(glob: str, root: Path, spark: Callable[[], SparkSession]) -> tuple[FileStore, str]:
    """The store, and the absolute glob. Spark starts only if the store needs it."""
    if glob.startswith("file:/"):
        glob = "/" + glob.removeprefix("file:").lstrip("/")
    elif has_scheme(glob):
        from tallymark.sources.hadoop import HadoopStore

        return HadoopStore(spark()), glob
    return LocalStore(), _absolute(glob, root)


def stores_of(
    paths: Iterable[str], spark: Callable[[], SparkSession]
) -> Iterator[tuple[FileStore, list[str]]]:
    """The paths of each store."""
    known = list(paths)
    local = [path for path in known if is_local(path)]
    if local:
        yield LocalStore(), local
    if len(local) < len(known):
        from tallymark.sources.hadoop import HadoopStore

        yield HadoopStore(spark()), [path for path in known if not is_local(path)]


class LocalStore:
    def list(self, glob: str) -> Iterator[FileStat]:
        if (named := _regular(glob)) and not is_hidden(Path(glob).name):
            return iter([named])  # a name that contains characters of a glob
        patterns = [split_fixed(pattern) for pattern in expand_braces(glob)]
        files = chain.from_iterable(_walk(folder, parts) for folder, parts in patterns)
        meets_once = len(patterns) == 1 and patterns[0][1].count("**") <= 1
        return files if meets_once else _each_once(files)

    def why_nothing(self, glob: str) -> SourceError | None:
        reasons = [_why_nothing(glob, pattern) for pattern in expand_braces(glob)]
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
            # Links are not followed here: a link to a parent folder would never end.
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, parts)
        return
    matches = part_regex(part).fullmatch
    for entry in _entries(folder):
        if not matches(entry.name):
            continue
        if below:
            if entry.is_dir():
                yield from _walk(entry.path, below)
        elif file := _regular(entry.path):
            yield file


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """One at a time: a landing zone may hold a million."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_hidden(entry.name):
                    yield entry
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SourceError(
            f"{folder}: the folder cannot be listed: {error.strerror}",
            hint="allow this user to read the folder",
            facts={"path": folder},
        ) from error


def _regular(path: str) -> FileStat | None:
    """None if there is no regular file: nothing, a folder, a pipe, a socket or a dangling link."""
    try:
        found = os.stat(path)  # noqa: PTH116 (10,000 Path objects would cost more than the calls)
    except (OSError, ValueError):
        return None
    return FileStat(path, found.st_size, found.st_mtime_ns) if modes.S_ISREG(found.st_mode) else None


def _open(path: str) -> BufferedReader:
    """Never blocks, not even if a pipe has replaced the file since it was listed."""
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
    hint = "allow this user to read the file" if isinstance(error, PermissionError) else ""
    return UnreadableFile(path, f"cannot be read: {error.strerror}", hint=hint)


def _why_nothing(glob: str, pattern: str) -> SourceError | None:
    folder, parts = split_fixed(pattern)
    facts = {"glob": glob, "folder": folder}
    if not Path(folder).is_dir():
        return SourceError(
            f"source.files: {glob} matches nothing: the folder {folder} does not exist",
            hint=_nearest(Path(folder)),
            facts=facts,
        )
    if len(parts) == 1 and not is_magic(parts[0]):
        if (Path(folder) / parts[0]).is_dir():
            return is_a_folder(glob, facts)
        if is_hidden(parts[0]):
            return SourceError(
                f"source.files: {glob}: names that begin with . or _ are hidden from Spark",
                hint="rename the file",
                facts=facts,
            )
    elif len(parts) == 1 and parts[0] != "**":
        folders = [entry for entry in _entries(folder) if part_regex(parts[0]).fullmatch(entry.name)]
        if folders and all(entry.is_dir() for entry in folders):
            return is_a_folder(glob, facts)
    return None


def is_a_folder(glob: str, facts: dict[str, str]) -> SourceError:
    return SourceError(
        f"source.files: {glob} matches only a folder, not files",
        hint=f"to load the files in it, write {glob.rstrip('/')}/*",
        facts=facts,
    )


def _nearest(folder: Path) -> str:
    """Names the first part of the path that does not exist, and a similar folder beside it."""
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


# Paths


def is_local(path: str) -> bool:
    return path.startswith("/")


def has_scheme(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) is not None


def for_reader(path: str) -> str:
    """The path for Spark's `load`, which takes it for a glob: characters of a glob are escaped."""
    escaped = re.sub(r"([\\\[\]{}*?])", r"\\\1", path)
    # Without the scheme, a cluster would read from its default file system.
    return f"file:{escaped}" if is_local(path) else escaped


def as_reported(path: str) -> str:
    """The path as in `_metadata.file_path`, an encoded URL. Rows are matched to files by it."""
    if is_local(path):
        return "file:" + _encode(path)
    found = _SCHEME.fullmatch(path)
    if not found:
        return _encode(path)
    return f"{found[1]}:{found[2] or ''}{_encode(found[3])}"


def spellings(path: str) -> list[str]:
    """Every form in which an error message of Spark may name the file."""
    forms = []
    for form in (as_reported(path), f"file:{path}" if is_local(path) else path):
        forms.append(form)
        if re.match(r"file:/[^/]", form):
            forms.append("file://" + form.removeprefix("file:"))
    return [*forms, path]


def _encode(path: str) -> str:
    return "".join(char if _stays(char) else _percent(char) for char in path)


def _stays(char: str) -> bool:
    if char < "\x80":
        return char in _NOT_ENCODED
    return unicodedata.category(char) not in ("Zs", "Zl", "Zp", "Cc")


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


# Globs: `*`, `?`, `[a-z]`, `[!a]`, `{a,b}`, `**`, and `\\` before a character that is meant literally


def is_magic(part: str) -> bool:
    return _MAGIC.search(part) is not None


def is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN)


def expand_braces(pattern: str) -> list[str]:
    """`a/{b,c}/*.csv` means `a/b/*.csv` and `a/c/*.csv`."""
    found = re.search(r"(?<!\\)\{([^{}]*,[^{}]*)\}", pattern)
    if not found:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [
        expanded for choice in found[1].split(",") for expanded in expand_braces(f"{before}{choice}{after}")
    ]


def split_fixed(pattern: str) -> tuple[str, list[str]]:
    """The folder before the first part with a wildcard, and the parts below it. Without a wildcard, the last
    part counts as below."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts[:-1]) if is_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else "."), parts[fixed:]


def part_regex(part: str) -> re.Pattern[str]:
    return re.compile(_translate(part), re.DOTALL)


def path_regex(pattern: str) -> re.Pattern[str]:
    """Matches a whole path. Hidden names below the fixed folder never match."""
    folder, parts = split_fixed(pattern)
    regex = re.escape(folder.rstrip("/"))
    for i, part in enumerate(parts):
        if part == "**":
            last = i == len(parts) - 1
            regex += "(?:/[^./_][^/]*)+" if last else "(?:/[^./_][^/]*)*"
        else:
            regex += f"/(?![._]){_translate(part)}"
    return re.compile(regex, re.DOTALL)


def _translate(part: str) -> str:
    out, i = [], 0
    while i < len(part):
        char = part[i]
        i += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "\\" and i < len(part):
            out.append(re.escape(part[i]))
            i += 1
        elif char == "[" and (end := part.find("]", i + 2 if part[i : i + 1] in ("!", "^") else i + 1)) > 0:
            out.append(_character_set(part[i:end]))
            i = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _character_set(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if negated else inside)
    return f"[{'^' if negated else ''}{body}]"
