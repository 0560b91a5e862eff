"""Files in the place of a Delta table that is not there yet: Delta would happily start it among them."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tallymark.destinations.spark_sql import literal_path, reason
from tallymark.errors import DestinationError, NotATable


def refuse_foreign_files(spark: SparkSession, path: str | None, folder: Path | None) -> None:
    """`path` is None for a table of a catalog, `folder` is one that this process sees as Spark does."""
    if path is None:
        return
    found = found_by_spark(spark, path) if folder is None else found_in(folder)
    if found is not None:
        raise NotATable(
            f"{path}: holds files that are not a Delta table, such as {found}",
            hint="choose another folder or `table`, or move those files away",
        )


def found_by_spark(spark: SparkSession, path: str) -> str | None:
    """The URL of one of them; None when there is none."""
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(path))
        found = files.select("path").limit(1).collect()
    except AnalysisException:  # nothing there
        return None
    return str(found[0]["path"]) if found else None


def found_in(folder: Path) -> str | None:
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
            if Path(place, name).stat().st_size:
                return f"file:{place}/{name}"
    return None


def _is_data(name: str) -> bool:
    """Spark's rule for what it reads."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not hidden and not name.endswith("._COPYING_")
