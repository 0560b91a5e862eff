"""Files on any file system that Spark reads, through its `binaryFile` source: it needs no other driver."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.errors import SourceError, UnreadableFile
from tallymark.model.batch import FileStat
from tallymark.sources.read_failures import spark_failure, unreadable_from
from tallymark.sources.stores import Progress, expand_braces, for_reader, is_a_folder, path_regex, split_fixed

_MOST_BYTES = (1 << 31) - 1  # a file is one value of a row, which can hold so much
_FILES_AT_A_TIME = 500
_Stats = list[FileStat]
_Paths = list[str]


class HadoopStore:
    def __init__(self, spark: SparkSession):
        self._spark = spark

    def list(self, glob: str) -> list[FileStat]:
        found: dict[str, FileStat] = {}
        for pattern in expand_braces(glob):
            wanted = path_regex(_as_listed(pattern))
            # Spark also lists what is inside a matching folder; these paths do not match the glob.
            for file in self._list(pattern):
                if wanted.fullmatch(file.path):
                    found[file.path] = file
        return [found[path] for path in sorted(found)]

    def why_nothing(self, glob: str) -> SourceError | None:
        folder = split_fixed(expand_braces(glob)[0])[0]
        facts = {"glob": glob, "folder": folder}
        if self._stats([folder], recursive=False) is None:
            return SourceError(
                f"source.files: {glob} matches nothing: {folder} does not exist",
                hint="create it, or correct source.files",
                facts=facts,
            )
        return is_a_folder(glob, facts) if self._list(glob) else None

    def hash(
        self, files: Sequence[FileStat], on_progress: Progress | None = None
    ) -> dict[str, str | UnreadableFile]:
        hashes: dict[str, str | UnreadableFile] = {}
        for start in range(0, len(files), _FILES_AT_A_TIME):
            hashes |= self._hash(files[start : start + _FILES_AT_A_TIME])
            if on_progress:
                on_progress(len(hashes), len(files))
        return hashes

    def head(self, paths: Sequence[str], size: int) -> dict[str, bytes]:
        try:
            rows = self._load(paths).select("path", F.substring("content", 1, size).alias("head")).collect()
        except Exception as error:
            raise spark_failure(error, paths) from error
        return {row["path"]: bytes(row["head"]) for row in rows}

    def stat(self, paths: Sequence[str]) -> dict[str, FileStat]:
        wanted = set(paths)
        folders = sorted({path.rpartition("/")[0] + "/" for path in paths})
        listed = [self._stats([for_reader(folder)], recursive=False) or [] for folder in folders]
        return {file.path: file for files in listed for file in files if file.path in wanted}

    def _list(self, pattern: str) -> _Stats:
        if "**" in pattern:  # Hadoop's globs do not have it
            folder, _ = split_fixed(pattern)
            return self._stats([for_reader(folder)], recursive=True) or []
        return self._stats([pattern], recursive=False) or []

    def _stats(self, paths: _Paths, *, recursive: bool) -> _Stats | None:
        """None if the path does not exist."""
        try:
            rows = (
                self._load_raw(paths, recursive)
                .select("path", "length", F.unix_micros("modificationTime").alias("micros"))
                .collect()
            )
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return None
            raise spark_failure(error, paths) from error
        except Exception as error:
            raise spark_failure(error, paths) from error
        return [FileStat(row["path"], row["length"], row["micros"] * 1000) for row in rows]

    def _hash(self, files: Sequence[FileStat]) -> dict[str, str | UnreadableFile]:
        hashes: dict[str, str | UnreadableFile] = {
            file.path: _too_large(file) for file in files if file.size > _MOST_BYTES
        }
        left = [file.path for file in files if file.path not in hashes]
        while left:
            try:
                rows = self._load(left).select("path", F.sha2("content", 256).alias("hash")).collect()
            except Exception as error:
                bad = unreadable_from(error, left)
                if bad is None:
                    raise spark_failure(error, left) from error
                hashes[bad.path] = bad
                left.remove(bad.path)
            else:
                return hashes | {row["path"]: row["hash"] for row in rows}
        return hashes

    def _load(self, paths: Sequence[str]) -> DataFrame:
        return self._load_raw([for_reader(path) for path in paths], recursive=True)

    def _load_raw(self, paths: _Paths, recursive: bool) -> DataFrame:
        # Without the lookup option, folders like `day=1` would become columns.
        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", recursive)
        return reader.load(paths)


def _as_listed(pattern: str) -> str:
    """`file:///a` is listed as `file:/a`."""
    return "file:/" + pattern.removeprefix("file:").lstrip("/") if pattern.startswith("file:") else pattern


def _too_large(file: FileStat) -> UnreadableFile:
    return UnreadableFile(
        file.path,
        f"is too large ({file.size} bytes): files of 2 GiB and more cannot be hashed on this file system",
        hint="split the file, or mount the storage as a local folder",
    )
