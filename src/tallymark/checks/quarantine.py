"""The quarantine: bad rows wait in one Delta table per pipeline until they are replayed or dropped.

Each pipeline has its own table, so that pipelines that run at the same time never conflict. A batch writes
its bad rows before its commit. A retry replaces them, so that exactly one set remains. To read a quarantine
in a local folder, checks/quarantine_files.py needs no Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from tallymark.checks.casts import JSON_OPTIONS
from tallymark.checks.conform import CORRUPT, POSITION, PROBLEMS, RAW, RECORD_ORDER
from tallymark.checks.split import Checked
from tallymark.errors import CheckError, DestinationError, Unsupported
from tallymark.model.batch import Batch, QuarantinedRows
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER
from tallymark.model.report import QuarantinedRow, QuarantineSummary
from tallymark.model.table import SOURCE_FILE, SOURCE_FILE_HASH, Column
from tallymark.model.types import literal, quoted

LINE = "line"  # `raw` is the text of a malformed record
RECORD = "record"  # `raw` holds the source columns as JSON
_KIND, _RECORD = "_tm_kind", "_tm_record"  # these stand beside the user's columns
_ABSENT = {"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"}
_ROWS_PER_FILE = 1_000_000

ParseLines = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Replay:
    """Quarantined rows in the form of a source, for `conform`."""

    frame: DataFrame
    columns: tuple[Column, ...]


class Quarantine:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")

    def write(self, batch: Batch, checked: Checked) -> None:
        """Called before the commit. Replaces the rows of earlier attempts of this batch."""
        if not checked.rejected:
            if batch.attempt > 1:
                self.remove(batch.pipeline, batch.id)
            return
        files = -(-checked.rejected // _ROWS_PER_FILE)
        with _refusal(f"cannot write the bad rows of batch {batch.id} to {self._path(batch.pipeline)}"):
            writer = _quarantined(batch, checked).repartition(files).write.format("delta").mode("overwrite")
            writer.option("replaceWhere", f"batch_id = {literal(batch.id)}").save(self._path(batch.pipeline))

    def summaries(self, pipeline: str | None) -> list[QuarantineSummary]:
        """One per batch, of one pipeline or of all."""
        folders = self._folders() if pipeline is None else [pipeline]
        return [summary for folder in folders for summary in self._summaries(folder)]

    def rows(
        self, pipeline: str, batch_id: str | None = None, ids: Collection[str] | None = None, limit: int = 100
    ) -> list[QuarantinedRow]:
        table = self._table(pipeline)
        if table is None:
            return []
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            chosen = _chosen(table, batch_id, ids).orderBy("quarantined_at", "batch_id", "file_order", "row")
            return [
                QuarantinedRow(
                    id=row["id"],
                    pipeline=row["pipeline"],
                    batch_id=row["batch_id"],
                    file=row["file"],
                    row=row["row"],
                    column=row["column"],
                    reason=row["reason"],
                    raw=row["raw"],
                    quarantined_at=row["quarantined_at"].astimezone(UTC),  # Spark returns local time
                )
                for row in chosen.limit(limit).collect()
            ]

    def replay_content(self, pipeline: str, batch_id: str) -> QuarantinedRows | None:
        """The rows as a content with a hash, so that a replay is applied once, as a file is."""
        table = self._table(pipeline)
        if table is None:
            return None
        lines = F.concat(F.array(F.lit("replay"), F.lit(pipeline)), F.sort_array(F.collect_list("id")))
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            found = (
                _chosen(table, batch_id, None)
                .agg(F.count("*").alias("rows"), F.sha2(F.array_join(lines, "\n"), 256).alias("hash"))
                .collect()[0]
            )
        if not found["rows"]:
            return None
        return QuarantinedRows(batch_id, found["rows"], found["hash"])

    def replay_frame(self, pipeline: str, batch_id: str, parse_lines: ParseLines | None = None) -> Replay:
        """Records come back as they were read, with their original file and position. Malformed lines stay
        malformed unless `parse_lines` turns RAW into source columns, and into CORRUPT where it cannot. It
        must keep the other columns."""
        table = self._table(pipeline)
        chosen = None if table is None else _chosen(table, batch_id, None)
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            first = None if chosen is None else chosen.select("record_type").first()
        if chosen is None or first is None:
            raise CheckError(
                f"{pipeline}: batch {batch_id} has no rows in the quarantine",
                hint="`tallymark quarantine list` shows the batches that have some",
            )
        record = t.StructType.fromJson(json.loads(first["record_type"]))
        _check_replayable(record, pipeline)
        columns = tuple(Column(field.name, field.dataType.simpleString()) for field in record.fields)
        return Replay(_replayed(chosen, record, parse_lines), columns)

    def remove(self, pipeline: str, batch_id: str, ids: Collection[str] | None = None) -> int:
        """Called after a replay is committed, and to drop rows for good. Returns the number of rows."""
        if self._table(pipeline) is None:
            return 0
        condition = f"batch_id = {literal(batch_id)}"
        if ids is not None:
            if not ids:
                return 0
            condition += f" AND id IN ({', '.join(map(literal, sorted(ids)))})"
        path = quoted(self._path(pipeline))
        with _refusal(f"cannot remove rows from the quarantine of {pipeline}"):
            done = self._spark.sql(f"DELETE FROM delta.{path} WHERE {condition}").collect()
        return int(done[0]["num_affected_rows"])

    def _path(self, pipeline: str) -> str:
        return f"{self._root}/{pipeline}"

    def _table(self, pipeline: str) -> DataFrame | None:
        with _refusal(f"cannot open the quarantine of {pipeline}"):
            try:
                table = self._spark.read.format("delta").load(self._path(pipeline))
                table.schema  # noqa: B018  Spark Connect opens the table only now
            except AnalysisException as error:
                if error.getCondition() in _ABSENT:
                    return None
                raise
        return table

    def _folders(self) -> list[str]:
        """Lists with Spark's file systems, which know every URL."""
        logs = re.sub(r"([\\\[\]{}*?,])", r"\\\1", self._root) + "/*/_delta_log/*.json"
        with _refusal(f"cannot list {self._root}"):
            try:
                found = self._spark.read.format("binaryFile").load(logs)
                folders = (
                    found.select(F.regexp_extract("path", "([^/]+)/_delta_log/", 1)).distinct().collect()
                )
            except AnalysisException as error:
                if error.getCondition() in _ABSENT:
                    return []
                raise
        return sorted(row[0] for row in folders)

    def _summaries(self, pipeline: str) -> list[QuarantineSummary]:
        from tallymark.checks.quarantine_files import BadRowGroup, summaries_of

        table = self._table(pipeline)
        if table is None:
            return []
        counts = F.count("*").alias("rows"), F.min("quarantined_at").alias("at")
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            found = table.groupBy("batch_id", "file", "reason").agg(*counts).collect()
        groups = (
            BadRowGroup(row["batch_id"], row["file"], row["reason"], row["rows"], row["at"].astimezone(UTC))
            for row in found
        )
        return summaries_of(pipeline, groups)


def _quarantined(batch: Batch, checked: Checked) -> DataFrame:
    file = F.coalesce(SOURCE_FILE, F.lit(""))
    first = F.get(PROBLEMS, F.lit(0))
    # A record that changes a key becomes two rows; their orders are even and odd.
    part = [F.col(ROW_ORDER) % 2] if RECORD_ORDER in checked.bad.columns else []
    return checked.bad.select(
        F.sha2(F.concat_ws("\n", F.lit(batch.id), file, F.col(POSITION), *part), 256).alias("id"),
        F.lit(batch.pipeline).alias("pipeline"),
        F.lit(batch.id).alias("batch_id"),
        file.alias("file"),
        F.col(SOURCE_FILE_HASH).alias("file_hash"),
        F.col(FILE_ORDER).cast("bigint").alias("file_order"),
        F.col(POSITION).cast("bigint").alias("row"),
        first["column"].alias("column"),
        first["reason"].alias("reason"),
        first["value"].alias("value"),
        F.when(first["column"] == "", F.lit(LINE)).otherwise(F.lit(RECORD)).alias("kind"),
        F.col(RAW).alias("raw"),
        F.col(PROBLEMS).alias("problems"),
        F.lit(checked.source.json()).alias("record_type"),
        F.lit(batch.as_of).alias("quarantined_at"),
    )


def _replayed(chosen: DataFrame, record: t.StructType, parse_lines: ParseLines | None) -> DataFrame:
    placed = chosen.select(
        F.lit(0).alias(FILE_ORDER),  # a replay is one content
        F.col("file_order").alias(ROW_BLOCK),  # keeps the order of the files inside it
        F.col("row").alias(ROW_ORDER),
        F.col("row").alias(POSITION),
        F.col("file").alias(SOURCE_FILE),
        F.col("file_hash").alias(SOURCE_FILE_HASH),
        F.col("kind").alias(_KIND),
        F.col("raw").alias(RAW),
    )
    parsed = F.from_json(RAW, record, {**JSON_OPTIONS, "mode": "FAILFAST"})
    records = placed.filter(F.col(_KIND) == RECORD).withColumn(_RECORD, parsed)
    records = records.select("*", f"{_RECORD}.*", F.lit(None).cast("string").alias(CORRUPT))
    lines = placed.filter(F.col(_KIND) == LINE)
    lines = parse_lines(lines) if parse_lines else lines.withColumn(CORRUPT, F.col(RAW))
    return records.unionByName(lines, allowMissingColumns=True).drop(_KIND, _RECORD, RAW)


def _check_replayable(found: t.DataType, pipeline: str) -> None:
    match found:
        case t.StructType():
            for field in found.fields:
                _check_replayable(field.dataType, pipeline)
        case t.ArrayType():
            _check_replayable(found.elementType, pipeline)
        case t.MapType() if not isinstance(found.keyType, t.StringType):
            raise Unsupported(
                f"{pipeline}: rows with a {found.simpleString()} cannot be replayed: JSON keys are text",
                hint="`tallymark quarantine show` prints the rows; deliver them again in a new file",
            )
        case t.MapType():
            _check_replayable(found.valueType, pipeline)


def _chosen(table: DataFrame, batch_id: str | None, ids: Collection[str] | None) -> DataFrame:
    if batch_id is not None:
        table = table.filter(F.col("batch_id") == batch_id)
    if ids is not None:
        table = table.filter(F.col("id").isin(sorted(ids)))
    return table


@contextmanager
def _refusal(what: str) -> Iterator[None]:
    """Catches Exception because classic Spark passes on the errors of Java, which share no class."""
    try:
        yield
    except Exception as error:
        raise DestinationError(
            f"{what}: {_cause(error)}",
            hint="make sure that the folder is writable and holds nothing else, then run again",
        ) from error


def _cause(error: Exception) -> str:
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith("An error occurred while calling")]
    return useful[0] if useful else type(error).__name__
