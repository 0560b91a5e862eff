"""The quarantine: bad rows wait in one Delta table per pipeline until they are replayed or dropped.

Each pipeline has its own table, so that pipelines that run at the same time never conflict. A batch writes
its bad rows before its commit, under the attempt that it is at. Nothing here knows which attempts were
committed: the ledger does (`Fate.shows`), and readers name the attempts whose rows they want. So there is no
moment at which rows of a batch that failed count, whoever dies when. To read a quarantine in a local folder,
checks/quarantine_files.py needs no Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from tallymark.checks.casts import JSON_OPTIONS
from tallymark.checks.conform import CORRUPT, POSITION, PROBLEMS, RAW, RECORD_ORDER
from tallymark.checks.split import Checked
from tallymark.errors import CheckError, DestinationError, Unsupported
from tallymark.model.batch import Attempt, Batch
from tallymark.model.plan import FILE_ORDER, ROW_BLOCK, ROW_ORDER
from tallymark.model.private_files import made_private
from tallymark.model.report import QuarantinedRow, QuarantineSummary
from tallymark.model.table import SOURCE_FILE, SOURCE_FILE_HASH, Column
from tallymark.model.types import literal, quoted
from tallymark.spark.launch_settings import is_local
from tallymark.spark.sessions import shares_files

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
    """Writes to the first of its roots; the others are where earlier versions wrote."""

    def __init__(self, spark: SparkSession, *roots: str) -> None:
        self._spark = spark
        self._roots = tuple(root.rstrip("/") for root in roots)
        self._written: set[Attempt] = set()

    def write(self, batch: Batch, fence: int, checked: Checked) -> None:
        """Called before the commit. Rows that this worker wrote before it had to plan again are replaced. An
        attempt of an earlier version kept its rows without a fence; it has not committed, or this one would
        not be."""
        attempt = Attempt(batch.id, fence)
        earlier = [attempt] if attempt in self._written else []
        if batch.attempt > 1:
            earlier.append(Attempt(batch.id, None))
        if earlier:
            self.remove(batch.pipeline, earlier)
        if not checked.rejected:
            return
        self._written.add(attempt)
        files = -(-checked.rejected // _ROWS_PER_FILE)
        path = f"{self._roots[0]}/{batch.pipeline}"
        with _refusal(f"cannot write the bad rows of batch {batch.id} to {path}"):
            rows = _quarantined(batch, fence, checked).repartition(files)
            with made_private(Path(path)) if self._is_embedded(path) else nullcontext():
                rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)

    def _is_embedded(self, path: str) -> bool:
        """On a cluster, those who write the files may be other users."""
        local = ":/" not in path and shares_files(self._spark)
        return local and is_local(self._spark.conf.get("spark.master", "") or "")

    def pipelines(self) -> list[str]:
        """Those that have a table in the quarantine, empty or not."""
        return sorted({name for root in self._roots for name in self._folders(root)})

    def attempts(self, pipeline: str) -> set[Attempt]:
        """Those that have rows, whether their batches were committed or not."""
        table = self._table(pipeline)
        if table is None:
            return set()
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            found = table.select("batch_id", "fence").distinct().collect()
        return {Attempt(row["batch_id"], row["fence"]) for row in found}

    def rows(
        self,
        pipeline: str,
        attempts: Collection[Attempt],
        ids: Collection[str] | None = None,
        limit: int = 100,
    ) -> list[QuarantinedRow]:
        table = self._table(pipeline)
        if table is None or not attempts:
            return []
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            order = "quarantined_at", "batch_id", "file_order", "row"
            chosen = table.filter(_condition(attempts, ids)).orderBy(*order)
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

    def replay_frame(
        self, pipeline: str, attempts: Collection[Attempt], parse_lines: ParseLines | None = None
    ) -> Replay:
        """Records come back as they were read, with their original file and position. Malformed lines stay
        malformed unless `parse_lines` turns RAW into source columns, and into CORRUPT where it cannot. It
        must keep the other columns."""
        table = self._table(pipeline)
        chosen = None if table is None or not attempts else table.filter(_condition(attempts))
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            first = None if chosen is None else chosen.select("record_type").first()
        if chosen is None or first is None:
            raise CheckError(
                f"{pipeline}: the rows to be replayed are no longer in the quarantine",
                hint="`tallymark quarantine list` shows the batches that have some",
            )
        record = t.StructType.fromJson(json.loads(first["record_type"]))
        _check_replayable(record, pipeline)
        columns = tuple(Column(field.name, field.dataType.simpleString()) for field in record.fields)
        return Replay(_replayed(chosen, record, parse_lines), columns)

    def remove(self, pipeline: str, attempts: Collection[Attempt], ids: Collection[str] | None = None) -> int:
        """For good. Returns the number of rows."""
        if not attempts or (ids is not None and not ids):
            return 0
        removed = 0
        for root, table in self._tables(pipeline):
            path = quoted(f"{root}/{pipeline}")
            with_fence = "fence" in table.columns
            condition = _condition(attempts, ids, with_fence=with_fence)
            with _refusal(f"cannot remove rows from the quarantine of {pipeline}"):
                done = self._spark.sql(f"DELETE FROM delta.{path} WHERE {condition}").collect()
            removed += int(done[0]["num_affected_rows"])
        return removed

    def _table(self, pipeline: str) -> DataFrame | None:
        """Of all roots."""
        whole: DataFrame | None = None
        for _, table in self._tables(pipeline):
            fence = F.col("fence") if "fence" in table.columns else F.lit(None).cast("bigint")
            found = table.withColumn("fence", fence)
            whole = found if whole is None else whole.unionByName(found)
        return whole

    def _tables(self, pipeline: str) -> Iterator[tuple[str, DataFrame]]:
        for root in self._roots:
            with _refusal(f"cannot open the quarantine of {pipeline}"):
                try:
                    table = self._spark.read.format("delta").load(f"{root}/{pipeline}")
                    table.schema  # noqa: B018  Spark Connect opens the table only now
                except AnalysisException as error:
                    if error.getCondition() in _ABSENT:
                        continue
                    raise
            yield root, table

    def _folders(self, root: str) -> list[str]:
        """Lists with Spark's file systems, which know every URL."""
        logs = re.sub(r"([\\\[\]{}*?,])", r"\\\1", root) + "/*/_delta_log/*.json"
        with _refusal(f"cannot list {root}"):
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

    def summaries(self, pipeline: str, attempts: Collection[Attempt]) -> list[QuarantineSummary]:
        from tallymark.checks.quarantine_files import BadRowGroup, summaries_of

        table = self._table(pipeline)
        if table is None or not attempts:
            return []
        counts = F.count("*").alias("rows"), F.min("quarantined_at").alias("at")
        with _refusal(f"cannot read the quarantine of {pipeline}"):
            chosen = table.filter(_condition(attempts))
            found = chosen.groupBy("batch_id", "file", "reason").agg(*counts).collect()
        groups = (
            BadRowGroup(row["batch_id"], row["file"], row["reason"], row["rows"], row["at"].astimezone(UTC))
            for row in found
        )
        return summaries_of(pipeline, groups)


def _quarantined(batch: Batch, fence: int, checked: Checked) -> DataFrame:
    file = F.coalesce(SOURCE_FILE, F.lit(""))
    first = F.get(PROBLEMS, F.lit(0))
    # A record that changes a key becomes two rows; their orders are even and odd.
    part = [F.col(ROW_ORDER) % 2] if RECORD_ORDER in checked.bad.columns else []
    return checked.bad.select(
        F.sha2(F.concat_ws("\n", F.lit(batch.id), file, F.col(POSITION), *part), 256).alias("id"),
        F.lit(batch.pipeline).alias("pipeline"),
        F.lit(batch.id).alias("batch_id"),
        F.lit(fence).cast("bigint").alias("fence"),
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


def _condition(
    attempts: Collection[Attempt], ids: Collection[str] | None = None, *, with_fence: bool = True
) -> str:
    """Batches by fence, so that many batches are one list. A table of an earlier version has no fences."""
    by_fence: dict[int | None, list[str]] = {}
    for attempt in sorted(attempts, key=lambda one: one.batch_id):
        by_fence.setdefault(attempt.fence, []).append(attempt.batch_id)
    if not with_fence:
        by_fence = {None: by_fence.get(None, [])}
    any_of = [
        f"({f'fence <=> {_fence(fence)}' if with_fence else 'true'} AND {_in_list('batch_id', batch_ids)})"
        for fence, batch_ids in by_fence.items()
    ]
    wanted = f"({' OR '.join(any_of)})"
    return wanted if ids is None else f"{wanted} AND {_in_list('id', sorted(ids))}"


def _fence(fence: int | None) -> str:
    return "CAST(NULL AS bigint)" if fence is None else f"{fence}L"


def _in_list(column: str, texts: Collection[str]) -> str:
    return f"{column} IN ({', '.join(map(literal, texts))})" if texts else "false"


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
