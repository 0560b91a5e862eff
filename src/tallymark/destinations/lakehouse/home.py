"""Files in the place of a Delta table that is not there yet: Delta would happily start it among them.

A first load that was killed leaves files too: Delta writes rows before it makes the log. So that these do not
stand in the way of the next try:
1. Before the first write of a table, `_tallymark/begun` says that Tallymark has begun one here.
2. Whoever finds no table, but this note, takes what is named as Delta names its files for remains. They stay:
   the dead writer's statement may still be at work in Spark, and VACUUM removes what no commit names.
3. Once the table's markers are copied, the note says nothing any more: data files without a log are then what
   is left of a table, and nothing is started among them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tallymark.destinations.lakehouse.marker_copies import PLACES as MARKER_PLACES
from tallymark.errors import DestinationError, NotATable
from tallymark.spark.sql import beside_data, literal_path, local_frame, reason

_BEGUN = "begun"
_WRITTEN_BY_DELTA = r"part-\d{5}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*\.parquet"


def begin_table(spark: SparkSession, location: str | Path, batch_id: str) -> None:
    """A Path is a place that this process sees as Spark does."""
    note = beside_data(location, _BEGUN)
    if isinstance(note, Path):
        note.parent.mkdir(parents=True, exist_ok=True)
        with note.open("w", encoding="utf-8") as file:
            file.write(f"{batch_id}\n")
            file.flush()
            os.fsync(file.fileno())
    else:
        text = local_frame(spark, [(batch_id,)], "value string")
        text.coalesce(1).write.mode("overwrite").text(note)


def refuse_foreign_files(spark: SparkSession, path: str | None, folder: Path | None) -> None:
    """`path` is None for a table of a catalog, `folder` is one that this process sees as Spark does."""
    if path is None:
        return
    found = _found(spark, path, folder)
    if found is not None and _only_begun(spark, folder or path):
        found = _found(spark, path, folder, but=_WRITTEN_BY_DELTA)
    if found is not None:
        raise NotATable(
            f"{path}: holds files that are not a Delta table, such as {found}",
            hint="choose another folder or `table`, or move those files away",
        )


def _found(spark: SparkSession, path: str, folder: Path | None, but: str | None = None) -> str | None:
    return found_by_spark(spark, path, but) if folder is None else found_in(folder, but)


def _only_begun(spark: SparkSession, location: str | Path) -> bool:
    return _is_there(spark, beside_data(location, _BEGUN)) and not any(
        _is_there(spark, beside_data(location, place)) for place in MARKER_PLACES
    )


def _is_there(spark: SparkSession, place: str | Path) -> bool:
    return place.exists() if isinstance(place, Path) else found_by_spark(spark, place) is not None


def found_by_spark(spark: SparkSession, path: str, but: str | None = None) -> str | None:
    """The URL of a file there whose name is not like `but`; None when there is none."""
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(path))
        if but is not None:
            files = files.where(~F.col("path").rlike(f"/{but}$"))
        found = files.select("path").limit(1).collect()
    except AnalysisException:  # nothing there
        return None
    return str(found[0]["path"]) if found else None


def found_in(folder: Path, but: str | None = None) -> str | None:
    """The same of a folder of this machine, without a Spark job."""
    if folder.is_file():
        return f"file:{folder}"

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise DestinationError(
                f"{folder}: cannot be looked into: {reason(error)}",
                hint="check that this user may read the folder",
            ) from error

    for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = sorted(filter(_is_data, folders))
        for name in sorted(filter(_is_data, files)):
            if Path(place, name).stat().st_size and not (but is not None and re.fullmatch(but, name)):
                return f"file:{place}/{name}"
    return None


def _is_data(name: str) -> bool:
    """Spark's rule for what it reads."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not hidden and not name.endswith("._COPYING_")
