"""A batch of files as one DataFrame; every row has its file and its position in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from tallymark.config.pipeline_file import ColumnConfig, SourceConfig
from tallymark.errors import SourceError
from tallymark.model.batch import SourceFile
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER
from tallymark.model.table import SOURCE_FILE, SOURCE_FILE_HASH, Column, is_provenance
from tallymark.model.types import literal, quoted
from tallymark.sources.formats import READERS, TEXTUAL, format_of
from tallymark.sources.formats.scan import CORRUPT, PATH, SCAN_COLUMNS, Request
from tallymark.sources.read_failures import spark_failure, unreadable_from
from tallymark.sources.stores import as_reported
from tallymark.spark.frames import arrow_frame, local_frame

__all__ = ["CORRUPT", "SourceFrame", "read_files", "refuse_reserved", "unreadable_from"]

_REPLACEMENT = "\ufffd"
_RESERVED = "_tm_"


@dataclass(frozen=True)
class SourceFrame:
    """`frame` has `columns`, FILE_ORDER, ROW_BLOCK, ROW_ORDER, CORRUPT, _source_file_hash, _source_file."""

    frame: DataFrame
    columns: tuple[Column, ...]
    files: tuple[SourceFile, ...]


def read_files(
    spark: SparkSession,
    source: SourceConfig,
    rules: Sequence[ColumnConfig],
    files: Sequence[SourceFile],
    root: Path,
) -> SourceFrame:
    """Runs no job except what finding the schema needs."""
    request = Request(spark, source, tuple(rules), tuple(files))
    declared = format_of(source, files)
    try:
        scanned = READERS[declared](request)
        if scanned is None:
            return SourceFrame(_nothing(spark), (), request.files)
        fields = [field for field in scanned.schema.fields if field.name not in SCAN_COLUMNS]
        for field in fields:
            refuse_reserved(field.name)
        if declared in TEXTUAL and source.encoding_errors == "quarantine":
            scanned = _with_undecodable_rows(scanned, {f.name: f.dataType for f in fields})
        frame = _with_files(spark, scanned, [field.name for field in fields], request.files)
    except Exception as error:
        raise spark_failure(error, files) from error
    columns = tuple(Column(field.name, field.dataType.simpleString(), field.nullable) for field in fields)
    return SourceFrame(frame, columns, request.files)


def refuse_reserved(name: str) -> None:
    if name.casefold().startswith(_RESERVED) or is_provenance(name):
        raise SourceError(
            f"the files have a column {name}, which is a reserved name",
            hint="rename the column in the files",
            facts={"column": name},
        )


def _with_undecodable_rows(frame: DataFrame, types: dict[str, DataType]) -> DataFrame:
    """Readers put U+FFFD in the place of bytes that do not decode. Such a row counts as malformed."""
    texts = [
        quoted(name) if isinstance(kind, StringType) else f"CAST({quoted(name)} AS string)"
        for name, kind in types.items()
        if isinstance(kind, StringType) or kind.typeName() in ("struct", "array", "map")
    ]
    if not texts:
        return frame
    broken = f"contains(concat_ws('', {', '.join(texts)}), {literal(_REPLACEMENT)})"
    row = texts[0] if len(types) == 1 else f"to_json(struct({', '.join(map(quoted, types))}))"
    return frame.withColumn(CORRUPT, F.expr(f"coalesce({CORRUPT}, CASE WHEN {broken} THEN {row} END)"))


def _with_files(
    spark: SparkSession, frame: DataFrame, names: Sequence[str], files: Sequence[SourceFile]
) -> DataFrame:
    """Joins rows and files on the path as Spark spells it, which costs little per row."""
    if len(files) == 1:
        file = files[0]
        return frame.selectExpr(
            *map(quoted, names),
            *_positions("0"),
            f"{literal(file.content_hash)} AS {SOURCE_FILE_HASH}",
            f"{literal(file.path)} AS {SOURCE_FILE}",
        )
    joined = frame.join(F.broadcast(_file_table(spark, files)), PATH, "left")
    # A row whose path is not among those of the batch must not vanish.
    stranger = f"CAST(raise_error(concat('a row of an unknown file: ', {PATH})) AS int)"
    number = f"coalesce({FILE_ORDER}, {stranger})"
    return joined.selectExpr(*map(quoted, names), *_positions(number), SOURCE_FILE_HASH, SOURCE_FILE)


def _positions(file_order: str) -> list[str]:
    return [
        f"CAST({file_order} AS int) AS {FILE_ORDER}",
        f"CAST({ROW_BLOCK} AS bigint) AS {ROW_BLOCK}",
        f"CAST({ROW_ORDER} AS bigint) AS {ROW_ORDER}",
        f"CAST({CORRUPT} AS string) AS {CORRUPT}",
    ]


def _file_table(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    import pyarrow as pa

    return arrow_frame(
        spark,
        pa.table(
            {
                PATH: [as_reported(file.path) for file in files],
                FILE_ORDER: pa.array(range(len(files)), pa.int32()),
                SOURCE_FILE_HASH: [file.content_hash for file in files],
                SOURCE_FILE: [file.path for file in files],
            }
        ),
    )


def _nothing(spark: SparkSession) -> DataFrame:
    return local_frame(
        spark,
        [],
        f"{FILE_ORDER} int, {ROW_BLOCK} bigint, {ROW_ORDER} bigint, {CORRUPT} string, "
        f"{SOURCE_FILE_HASH} string, {SOURCE_FILE} string",
    )
