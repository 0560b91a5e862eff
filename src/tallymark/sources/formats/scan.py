"""What every format gives: a DataFrame of the source's columns with the position of each row.

A format's `read` takes a Request and returns the source's columns, CORRUPT, PATH, ROW_BLOCK and ROW_ORDER;
or None when the files hold neither columns nor rows.
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
from tallymark.model.sql_text import quoted
from tallymark.sources.locations import for_reader, is_local

CORRUPT = "_tm_corrupt"  # the raw text of a malformed record, else NULL
PATH = "_tm_path"  # the file as Spark spells it
ABSENT = "_tm_absent"  # a field that no record has
_METADATA = "_metadata"  # of Spark's own, about the file that a row comes from
SCAN_COLUMNS = (CORRUPT, PATH, ROW_BLOCK, ROW_ORDER)

# These would leave out rows or files without a word, and the files would count as loaded.
_REFUSED_OPTIONS = {
    "pathglobfilter": "use source.files",
    "modifiedbefore": "use source.files",
    "modifiedafter": "use source.files",
    "recursivefilelookup": "use ** in source.files",
    "basepath": "use source.files",
    "ignorecorruptfiles": "an unreadable file is set aside anyway",
    "ignoremissingfiles": "a missing file is noticed anyway",
    "columnnameofcorruptrecord": "malformed records go to the quarantine anyway",
    "encoding": "use source.encoding",
    "charset": "use source.encoding",
}

Options = dict[str, str]


@dataclass(frozen=True)
class Request:
    spark: SparkSession
    source: SourceConfig
    rules: tuple[ColumnConfig, ...]
    files: tuple[SourceFile, ...]

    def rule(self, name: str) -> ColumnConfig | None:
        wanted = name.casefold()
        return next((r for r in self.rules if (r.source or r.name).casefold() == wanted), None)


def user_options(source: SourceConfig) -> Options:
    """Option names are lower-cased: Spark ignores their case, a dict would not."""
    options = {
        key.lower(): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in source.options.items()
    }
    for name in options.keys() & _REFUSED_OPTIONS.keys():
        raise SourceError(f"source.options: {name} cannot be set here", hint=_REFUSED_OPTIONS[name])
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
    # The lookup option keeps folders like `day=1` from becoming columns.
    always = {"recursiveFileLookup": "true", "columnNameOfCorruptRecord": CORRUPT}
    return spark.read.format(spark_format).options(**{**options, **always})


def load(
    request: Request,
    spark_format: str,
    options: Mapping[str, str],
    files: Sequence[SourceFile],
    schema: StructType | None = None,
) -> DataFrame:
    """All formats read through here. Spark finds the schema itself, by a job, when none is given."""
    _list_in_driver(request.spark, files)
    made = reader(request.spark, spark_format, options)
    return (made.schema(schema) if schema else made).load([for_reader(file.path) for file in files])


def positioned(frame: DataFrame, columns: Sequence[Column], corrupt: Column | None = None) -> DataFrame:
    """Adds the position at the scan itself, before anything can move rows."""
    metadata = frame.metadataColumn(_METADATA)  # also when the file has a column of that name
    return frame.select(
        *columns,
        (F.lit(None) if corrupt is None else corrupt).cast("string").alias(CORRUPT),
        metadata["file_path"].alias(PATH),
        metadata["file_block_start"].alias(ROW_BLOCK),
        F.monotonically_increasing_id().alias(ROW_ORDER),
    )


def positioned_as_it_is(frame: DataFrame, names: Sequence[str], corrupt: str = "NULL") -> DataFrame:
    """The same of columns that nothing is done to; `corrupt` is SQL."""
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
    """A row for the quarantine where the record itself is no longer at hand."""
    return F.to_json(F.struct(*columns))


def _list_in_driver(spark: SparkSession, files: Sequence[SourceFile]) -> None:
    """Spark starts a task for every single path beyond 32: 10,000 local files took 59 s, so 3 s."""
    if len(files) > 32:
        if all(is_local(file.path) for file in files):
            spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000")
        else:
            spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "64")
