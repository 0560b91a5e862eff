"""Where a table of files lives: its folder, and Tallymark's own folder `_tallymark` inside it.

What is kept there goes where the table goes: copies of markers, tombstones, and the note of a first load.

Delta would happily start a table among files that are not its own, so they are refused. A first load that was
killed leaves files too, since rows are written before the log:

1. Before the first write of a table, `_tallymark/begun` records that Tallymark has begun one here.
2. Where there is no table but this note, files named as Delta names them are remains. They stay: the dead
   writer's statement may still run in Spark, and VACUUM removes what no commit names.
3. Once the table's markers are copied, the note no longer counts: data files without a log are then what is
   left of a table, and no table is started among them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.durable import sync_files
from tallymark.errors import DestinationError, NotATable
from tallymark.model.private_files import folder_of_a_table, open_as_table
from tallymark.spark.failures import reason
from tallymark.spark.frames import literal_path, local_frame

MARKER_TABLE, MARKER_FILES = "applied", "markers"  # copies of markers: a Delta table, or files
TOMBSTONE_TABLE, TOMBSTONE_FILES = "tombstones", "deletes"
_BEGUN = "begun"
_OWN_FOLDER = "_tallymark"
_LOG = "_delta_log"
_WRITTEN_BY_DELTA = r"part-\d{5}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*\.parquet"


@dataclass(frozen=True)
class Folder:
    """A folder as Spark names it, and as a local path where this process sees the same files as Spark."""

    url: str
    local: Path | None = None

    @classmethod
    def at(cls, path: Path) -> Folder:
        return cls(str(path), path)

    def own(self, name: str) -> Folder:
        """A place inside Tallymark's own folder."""
        inside = f"{_OWN_FOLDER}/{name}"
        return Folder(f"{self.url.rstrip('/')}/{inside}", self.local / inside if self.local else None)


def stored_delta(spark: SparkSession, folder: Folder) -> DataFrame | None:
    """A Delta table of Tallymark's own; None if there is none yet. A local folder is checked without
    Spark."""
    if folder.local is not None and not (folder.local / "_delta_log").is_dir():
        return None
    try:
        stored = spark.read.format("delta").load(folder.url)
        stored.columns  # noqa: B018 (Spark Connect reads the table only here)
    except AnalysisException:
        return None
    return stored


def note_first_load(spark: SparkSession, home: Folder, batch_id: str) -> None:
    note = home.own(_BEGUN)
    if note.local is not None:
        folder_of_a_table(note.local.parent)
        note.local.write_text(f"{batch_id}\n", encoding="utf-8")
        open_as_table(note.local)
        sync_files([note.local])
    else:
        text = local_frame(spark, [(batch_id,)], "value string")
        text.coalesce(1).write.mode("overwrite").text(note.url)


def refuse_foreign_files(spark: SparkSession, home: Folder) -> None:
    """For a place where there is no table yet."""
    found = _first_file(spark, home)
    if found is not None and _only_begun(spark, home):
        found = _first_file(spark, home, ignore=_WRITTEN_BY_DELTA)
    if found is not None:
        raise NotATable(
            f"{home.url}: holds files that are not a Delta table, such as {found}",
            hint="choose another folder or `table`, or move those files away",
        )


def refuse_nested(spark: SparkSession, home: Folder) -> None:
    """For a place where there is no table yet. Folders with a leading underscore or dot are safe."""
    outer = _table_above(spark, home)
    inner = None if home.local is None else _table_below(home.local)
    if outer is None and inner is None:
        return
    parent, child = (outer, home.url) if outer is not None else (home.url, inner)
    raise NotATable(
        f"{home.url}: no table can be made here, since {child} would be inside {parent}: a VACUUM of the "
        "outer table deletes the files of the inner one",
        hint=f"choose another `table` or folder, such as {home.url.rstrip('/')}_1",
    )


def _table_above(spark: SparkSession, home: Folder) -> str | None:
    if home.local is None:
        return next((url for url in _urls_above(home.url) if _has_log(spark, url)), None)
    for place in dict.fromkeys((home.local.absolute(), home.local.resolve())):
        for above in place.parents:
            inside = place.relative_to(above).parts
            if (above / _LOG).is_dir() and all(map(_is_data, inside)):
                return str(above)
    return None


def _table_below(folder: Path) -> str | None:
    for place, folders, _ in os.walk(folder):
        # A log in the folder itself is what a killed first load has left of this very table.
        if _LOG in folders and Path(place) != folder:
            return place
        folders[:] = sorted(filter(_is_data, folders))
    return None


def _urls_above(url: str) -> Iterator[str]:
    scheme, mark, path = url.rstrip("/").rpartition("://")
    first, *parts = path.split("/")
    for length in range(len(parts) - 1, -1, -1):
        if not all(map(_is_data, parts[length:])):
            return
        yield f"{scheme}{mark}{'/'.join([first, *parts[:length]])}" or "/"


def _has_log(spark: SparkSession, url: str) -> bool:
    with suppress(Exception):  # such as a folder that this user may not list
        return first_file_by_spark(spark, f"{url.rstrip('/')}/{_LOG}") is not None
    return False


def _only_begun(spark: SparkSession, home: Folder) -> bool:
    copies = (MARKER_TABLE, MARKER_FILES)
    return _exists(spark, home.own(_BEGUN)) and not any(_exists(spark, home.own(name)) for name in copies)


def _exists(spark: SparkSession, place: Folder) -> bool:
    return (
        place.local.exists() if place.local is not None else first_file_by_spark(spark, place.url) is not None
    )


def _first_file(spark: SparkSession, home: Folder, ignore: str | None = None) -> str | None:
    if home.local is None:
        return first_file_by_spark(spark, home.url, ignore)
    return first_local_file(home.local, ignore)


def first_file_by_spark(spark: SparkSession, path: str, ignore: str | None = None) -> str | None:
    """The URL of a file there whose name does not match `ignore`; None if there is none."""
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(path))
        if ignore is not None:
            files = files.where(~F.col("path").rlike(f"/{ignore}$"))
        found = files.select("path").limit(1).collect()
    except AnalysisException:  # there is nothing
        return None
    return str(found[0]["path"]) if found else None


def first_local_file(folder: Path, ignore: str | None = None) -> str | None:
    """The same for a local folder, without a Spark job."""
    if folder.is_file():
        return f"file:{folder}"

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise DestinationError(
                f"{folder}: cannot be listed: {reason(error)}",
                hint="check that this user may read the folder",
            ) from error

    for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = sorted(filter(_is_data, folders))
        for name in sorted(filter(_is_data, files)):
            if Path(place, name).stat().st_size and not (ignore is not None and re.fullmatch(ignore, name)):
                return f"file:{place}/{name}"
    return None


def _is_data(name: str) -> bool:
    """Spark's rule for the files that it reads."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not hidden and not name.endswith("._COPYING_")
