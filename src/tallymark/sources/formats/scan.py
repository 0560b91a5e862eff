"""What every reader of a format gives: the source's columns, with the position of each row.

A reader takes a Request and returns a DataFrame of the source's columns, CORRUPT, PATH, ROW_BLOCK and
ROW_ORDER; or None if the files have neither columns nor rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tallymark.config.pipeline_file import ColumnConfig, SourceConfig
from tallymark.errors import SourceError
from tallymark.model.batch import SourceFile
from tallymark.model.plan import ROW_BLOCK, ROW_ORDER
from tallymark.model.types import quoted
from tallymark.sources.stores import for_reader, is_local

CORRUPT = "_tm_corrupt"  # the raw text of a malformed record, else NULL
PATH = "_tm_path"  # the file as Spark spells it
ABSENT = "_tm_absent"  # a field that no record has
_METADATA = "_metadata"  # Spark's own column, about the file of a row
SCAN_COLUMNS = (CORRUPT, PATH, ROW_BLOCK, ROW_ORDER)

# These would silently leave out rows or files, and the files would count as loaded.
_REFUSED_OPTIONS = {
    "pathglobfilter": "use source.files",
    "modifiedbefore": "use source.files",
    "modifiedafter": "use source.files",
    "recursivefilelookup": "use ** in source.files",
    "basepath": "use source.files",
    "ignorecorruptfiles": "unreadable files are reported anyway",
    "ignoremissingfiles": "missing files are reported anyway",
    "columnnameofcorruptrecord": "malformed records go to the quarantine anyway",
    "encoding": "use source.encoding",
    "charset": "use source.encoding",
}

Options = dict[str, str]


@dataclass(frozen=True)
class Request:
    """What a reader needs."""

    spark: SparkSession
    source: SourceConfig
    rules: tuple[ColumnConfig, ...]
    files: tuple[SourceFile, ...]

    def rule(self, name: str) -> ColumnConfig | None:
        wanted = name.casefold()
        return next((r for r in self.rules if (r.source or r.name).casefold() == wanted), None)


def user_options(source: SourceConfig) -> Options:
    """Names are in lower case: Spark ignores their case, a dict does not."""
    options = {
        key.lower(): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in source.options.items()
    }
    for name in options.keys() & _REFUSED_OPTIONS.keys():
        raise SourceError(f"source.options: {name} cannot be set", hint=_REFUSED_OPTIONS[name])
    if options.get("mode", "").upper() == "DROPMALFORMED":
        raise SourceError(
            "source.options: mode DROPMALFORMED would lose rows",
            hint="remove mode: malformed records go to the quarantine",
        )
    return options


def options_for(source: SourceConfig, own: Mapping[str, str]) -> Options:
    """The user's options win over Tallymark's own."""
    return {**{key.lower(): value for key, value in own.items()}, **user_options(source)}


def is_on(options: Options, name: str) -> bool:
    return options.get(name.lower(), "false").lower() == "true"


def reader(spark: SparkSession, spark_format: str, options: Mapping[str, str]) -> DataFrameReader:
    # Without the lookup option, folders such as `day=1` would become columns.
    always = {"recursiveFileLookup": "true", "columnNameOfCorruptRecord": CORRUPT}
    return spark.read.format(spark_format).options(**{**options, **always})


def load(
    request: Request,
    spark_format: str,
    options: Mapping[str, str],
    files: Sequence[SourceFile],
    schema: StructType | None = None,
) -> DataFrame:
    """All formats read through here. Without a schema, Spark runs a job to find it."""
    _list_in_driver(request.spark, files)
    made = reader(request.spark, spark_format, options)
    return (made.schema(schema) if schema else made).load([for_reader(file.path) for file in files])


def positioned(frame: DataFrame, columns: Sequence[Column], corrupt: Column | None = None) -> DataFrame:
    """Adds the position in the scan itself, before anything can move rows."""
    metadata = frame.metadataColumn(_METADATA)  # also when the file has a column of that name
    return frame.select(
        *columns,
        (F.lit(None) if corrupt is None else corrupt).cast("string").alias(CORRUPT),
        metadata["file_path"].alias(PATH),
        metadata["file_block_start"].alias(ROW_BLOCK),
        F.monotonically_increasing_id().alias(ROW_ORDER),
    )


def positioned_unchanged(frame: DataFrame, names: Sequence[str], corrupt: str = "NULL") -> DataFrame:
    """`positioned` for columns that are not changed; `corrupt` is SQL."""
    if any(name.casefold() == _METADATA for name in names):
        return positioned(frame, [named(name) for name in names], F.expr(corrupt))
    return frame.selectExpr(
        *map(quoted, names),
        f"CAST({corrupt} AS string) AS {CORRUPT}",
        f"{_METADATA}.file_path AS {PATH}",
        f"{_METADATA}.file_block_start AS {ROW_BLOCK}",
        f"monotonically_increasing_id() AS {ROW_ORDER}",
    )


def united(frames: Sequence[DataFrame]) -> DataFrame | None:
    """By name; a column that one frame lacks is NULL in its rows."""
    if not frames:
        return None
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


def named(name: str) -> Column:
    return F.col(quoted(name))


def as_text(columns: Sequence[Column]) -> Column:
    """The row as JSON, for the quarantine, if the record itself is no longer available."""
    return F.to_json(F.struct(*columns))


def _list_in_driver(spark: SparkSession, files: Sequence[SourceFile]) -> None:
    """Beyond 32 paths Spark starts a task for each: listing 10,000 local files took 59 s, and takes 3 s
    so."""
    if len(files) > 32:
        if all(is_local(file.path) for file in files):
            spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000")
        else:
            spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "64")
