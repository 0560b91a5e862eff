from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tallymark.checks.conform import CORRUPT, RAW, Conformed, conform
from tallymark.checks.quarantine import Quarantine
from tallymark.checks.quarantine_files import NeedsSpark, QuarantineFiles
from tallymark.checks.split import split
from tallymark.config.pipeline_file import ColumnConfig, QuarantineConfig
from tallymark.errors import CheckError, DestinationError, Unsupported
from tallymark.model.batch import Attempt, Batch, Files, QuarantinedRows
from tallymark.spark.frames import local_frame

LENIENT = QuarantineConfig(max_fraction=1.0, max_rows=1_000_000)
PIPELINE = "silver.orders"
AS_OF = datetime(2026, 11, 1, 10, tzinfo=UTC)
ID = ColumnConfig(name="id", type="bigint")
HOSTILE = ["o'brien", 'say "x"', "two\nlines", "back\\slash", "𝄞 ünï", '{"a": 1}', "\x01\t", "x" * 1_000_000]


def batch(batch_id: str = "batch-1", attempt: int = 1) -> Batch:
    return Batch(batch_id, PIPELINE, "lake:orders", Files(()), 1, AS_OF, attempt)


@pytest.fixture
def quarantine(spark: SparkSession, tmp_path: Path) -> Quarantine:
    return Quarantine(spark, str(tmp_path / "bad [rows]"))


@pytest.fixture
def put(
    spark: SparkSession,
    quarantine: Quarantine,
    source: Callable[..., DataFrame],
    conformed: Callable[..., Conformed],
) -> Callable[..., None]:
    """Loads ids, of which those that are no numbers end in the quarantine."""

    def write(ids: list[str], batch_id: str = "batch-1", attempt: int = 1, fence: int = 7) -> None:
        frame = source(local_frame(spark, [(value, f"n{value}") for value in ids], "id string, kind string"))
        with split(conformed(frame, ID), LENIENT, []) as checked:
            quarantine.write(batch(batch_id, attempt), fence, checked)

    return write


@pytest.fixture
def files(tmp_path: Path) -> QuarantineFiles:
    """Reads what `quarantine` wrote, without Spark."""
    return QuarantineFiles(str(tmp_path / "bad [rows]"))


def read_alike(quarantine: Quarantine, files: QuarantineFiles, rows: int) -> None:
    """Spark and pyarrow read the same, in the same order."""
    attempts = files.attempts(PIPELINE)
    assert attempts == quarantine.attempts(PIPELINE)
    read = files.rows(PIPELINE, attempts)
    assert len(read) == rows
    assert read == quarantine.rows(PIPELINE, attempts)
    assert files.rows(PIPELINE, attempts, limit=2) == read[:2]
    for one in attempts:
        assert files.rows(PIPELINE, [one]) == quarantine.rows(PIPELINE, [one]) != []
    summaries = files.summaries(PIPELINE, attempts)
    assert summaries == quarantine.summaries(PIPELINE, attempts)
    assert sum(summary.rows for summary in summaries) == rows
    assert files.pipelines() == quarantine.pipelines() == [PIPELINE]


def of(batch_id: str, *, fence: int | None = 7) -> list[Attempt]:
    return [Attempt(batch_id, fence)]


def raw_ids(quarantine: Quarantine, attempts: Collection[Attempt] | None = None) -> list[str]:
    chosen = quarantine.attempts(PIPELINE) if attempts is None else attempts
    return [json.loads(row.raw)["id"] for row in quarantine.rows(PIPELINE, chosen)]


def test_nothing_is_made_when_nothing_is_bad(
    put: Callable[..., None], quarantine: Quarantine, tmp_path: Path
) -> None:
    put(["1", "2"])
    put(["1", "2"], attempt=2)
    assert list(tmp_path.rglob("*_delta_log*")) == []
    assert quarantine.pipelines() == [] and quarantine.attempts(PIPELINE) == set()
    assert not quarantine.summaries(PIPELINE, of("batch-1"))
    assert not quarantine.rows(PIPELINE, of("batch-1"))
    assert quarantine.remove(PIPELINE, of("batch-1")) == 0
    with pytest.raises(CheckError, match=PIPELINE):
        quarantine.replay_frame(PIPELINE, of("batch-1"))


def test_rows_say_where_they_came_from(put: Callable[..., None], quarantine: Quarantine) -> None:
    put(["1", "x", "2", "y"])
    first, second = quarantine.rows(PIPELINE, of("batch-1"))
    assert (first.file, first.row, first.column, first.reason) == ("/in/a.csv", 2, "id", "not a bigint")
    assert (first.pipeline, first.batch_id, second.row) == (PIPELINE, "batch-1", 4)
    assert first.raw == '{"id":"x","kind":"nx"}'
    assert first.quarantined_at.isoformat().startswith("2026-11-01T10:00:00")
    assert quarantine.rows(PIPELINE, of("batch-1"), ids=[second.id]) == [second]
    assert quarantine.rows(PIPELINE, of("batch-1"), limit=1) == [first]


@pytest.mark.slow
def test_each_attempt_keeps_its_own_rows(put: Callable[..., None], quarantine: Quarantine) -> None:
    """A late worker neither changes nor joins those of its successor. Who plans again replaces its own."""
    put(["other"], "it's \\ batch-2")
    put(["x", "y", "1"])
    put(["x", "z", "w", "1"], attempt=2, fence=8)
    put(["late", "1"])
    assert raw_ids(quarantine, of("batch-1")) == ["late"]
    assert raw_ids(quarantine, of("batch-1", fence=8)) == ["x", "z", "w"]
    assert raw_ids(quarantine, of("it's \\ batch-2")) == ["other"]
    put(["1"], attempt=2, fence=8)
    assert quarantine.attempts(PIPELINE) == {*of("batch-1"), *of("it's \\ batch-2")}


@pytest.mark.slow
def test_rows_of_earlier_versions_are_read_and_replaced_by_a_retry(
    spark: SparkSession,
    put: Callable[..., None],
    quarantine: Quarantine,
    files: QuarantineFiles,
    tmp_path: Path,
) -> None:
    """They have no fence: a batch had one set of rows. Their table may be at another place."""
    put(["x", "1"])
    put(["y"], "batch-2")
    here, there = str(tmp_path / "bad [rows]" / PIPELINE), str(tmp_path / "old" / PIPELINE)
    spark.read.format("delta").load(here).drop("fence").write.format("delta").save(there)
    old = Quarantine(spark, str(tmp_path / "old"))
    read_alike(old, QuarantineFiles(str(tmp_path / "old")), rows=2)
    assert old.attempts(PIPELINE) == {*of("batch-1", fence=None), *of("batch-2", fence=None)}
    both = Quarantine(spark, str(tmp_path / "bad [rows]"), str(tmp_path / "old"))
    read_alike(both, QuarantineFiles(str(tmp_path / "bad [rows]"), str(tmp_path / "old")), rows=4)
    assert both.remove(PIPELINE, [*of("batch-2"), *of("batch-2", fence=None)]) == 2
    frame = local_frame(spark, [("z",)], "id string")
    rows = frame.selectExpr("id", "'batch-1' AS batch_id", "9L AS fence")
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(there)
    assert old.attempts(PIPELINE) == {*of("batch-1", fence=None), *of("batch-1", fence=9)}
    put([], attempt=2, fence=8)
    assert old.remove(PIPELINE, of("batch-1", fence=None)) == 1


@pytest.mark.slow
def test_summaries_and_removal(put: Callable[..., None], quarantine: Quarantine) -> None:
    put(["x", "y", "1"])
    put(["x"], "batch-2")
    summaries = quarantine.summaries(PIPELINE, quarantine.attempts(PIPELINE))
    assert [(s.pipeline, s.batch_id, s.rows, s.files, s.reasons) for s in summaries] == [
        (PIPELINE, "batch-1", 2, 1, {"not a bigint": 2}),
        (PIPELINE, "batch-2", 1, 1, {"not a bigint": 1}),
    ]
    x = quarantine.rows(PIPELINE, of("batch-1"))[0]
    assert quarantine.remove(PIPELINE, of("batch-1"), []) == quarantine.remove(PIPELINE, []) == 0
    assert quarantine.remove(PIPELINE, of("batch-2"), [x.id]) == 0
    assert quarantine.remove(PIPELINE, of("batch-1"), [x.id]) == 1
    assert raw_ids(quarantine) == ["y", "x"]
    assert quarantine.remove(PIPELINE, of("batch-2")) == 1
    assert raw_ids(quarantine) == ["y"]


@pytest.mark.slow
def test_hostile_values_come_back_exactly(
    spark: SparkSession,
    quarantine: Quarantine,
    source: Callable[..., DataFrame],
    conformed: Callable[..., Conformed],
) -> None:
    frame = source(
        local_frame(
            spark,
            [*[("bad", value, None) for value in HOSTILE], ("1", "ok", None), ("1", "no", "5,\"\n'")],
            "id string, `Note of` string, c string",
        ),
        corrupt="c",
    ).drop("c")
    rules = [ID, ColumnConfig.model_validate({"from": "note of", "name": "note"})]
    with split(conformed(frame, *rules), LENIENT, []) as checked:
        quarantine.write(batch(), 7, checked)
    content = QuarantinedRows.of(PIPELINE, "batch-1", 9)
    assert (content.name, len(content.content_hash)) == ("quarantine:batch-1", 64)

    replay = quarantine.replay_frame(PIPELINE, of("batch-1"))
    assert [column.name for column in replay.columns] == ["id", "Note of"]
    fixed = [ColumnConfig(name="id", type="string"), rules[1]]
    again = conform(replay.frame, replay.columns, fixed, None, required=[], unique_key=[])
    with split(again, LENIENT, [content]) as checked:
        good = checked.good.orderBy("_tm_block", "_tm_row").collect()
        assert [row.note for row in good] == HOSTILE
        assert {row._source_file for row in good} == {"/in/a.csv"}
        assert {row._source_file_hash for row in good} == {"hash"}
        quarantine.write(batch("batch-2"), 7, checked)
    assert quarantine.remove(PIPELINE, of("batch-1")) == 9
    [line] = quarantine.rows(PIPELINE, of("batch-2"))
    assert (line.batch_id, line.raw, line.reason, line.row) == ("batch-2", "5,\"\n'", "malformed record", 10)


def test_malformed_lines_can_be_parsed_again(
    spark: SparkSession,
    quarantine: Quarantine,
    source: Callable[..., DataFrame],
    conformed: Callable[..., Conformed],
) -> None:
    frame = source(local_frame(spark, [(None, "7;seven"), (None, "?")], "id string, c string"), "c").drop("c")
    with split(conformed(frame, ID), LENIENT, []) as checked:
        quarantine.write(batch(), 7, checked)

    def by_semicolon(lines: DataFrame) -> DataFrame:
        readable = F.contains(RAW, F.lit(";"))
        return lines.withColumn("id", F.when(readable, F.split_part(RAW, F.lit(";"), F.lit(1)))).withColumn(
            CORRUPT, F.when(~readable, F.col(RAW))
        )

    replay = quarantine.replay_frame(PIPELINE, of("batch-1"), by_semicolon)
    again = conform(replay.frame, replay.columns, [ID], None, required=[], unique_key=["id"])
    with split(again, LENIENT, []) as checked:
        assert [row.id for row in checked.good.collect()] == [7]
        assert checked.rejected == 1


def test_native_types_come_back_exactly(
    spark: SparkSession,
    quarantine: Quarantine,
    source: Callable[..., DataFrame],
    conformed: Callable[..., Conformed],
) -> None:
    values = """9007199254740993L AS b, 0.1D AS d, double('NaN') AS n, 1.50BD AS m,
        timestamp'2026-11-01 10:00:00.123456' AS t, timestamp_ntz'2026-11-01 10:00:00.123456' AS z,
        date'2026-11-01' AS day, X'00FF' AS x, array(1, null) AS a, map('k', named_struct('f', 1.5D)) AS s,
        true AS o, null AS v"""
    frame = source(spark.sql(f"SELECT cast(null AS int) AS id, {values}"))
    with split(conformed(frame, unique_key=["id"]), LENIENT, []) as checked:
        quarantine.write(batch(), 7, checked)
    replay = quarantine.replay_frame(PIPELINE, of("batch-1"))
    names = [column.name for column in replay.columns]
    assert repr(replay.frame.select(names).collect()) == repr(frame.select(names).collect())
    assert dict(replay.frame.select(names).dtypes) | {"v": "void"} == dict(frame.select(names).dtypes)


def test_what_json_cannot_bring_back_is_refused(
    spark: SparkSession,
    quarantine: Quarantine,
    source: Callable[..., DataFrame],
    conformed: Callable[..., Conformed],
) -> None:
    frame = source(spark.sql("SELECT cast(null AS int) AS id, array(map(1, 2)) AS m"))
    with split(conformed(frame, unique_key=["id"]), LENIENT, []) as checked:
        quarantine.write(batch(), 7, checked)
    with pytest.raises(Unsupported, match="map<int,int>"):
        quarantine.replay_frame(PIPELINE, of("batch-1"))


def test_a_place_that_cannot_be_written_is_a_clear_error(
    spark: SparkSession,
    tmp_path: Path,
    source: Callable[..., DataFrame],
    conformed: Callable[..., Conformed],
) -> None:
    (tmp_path / "file").write_text("not a folder")
    made = conformed(source(spark.sql("SELECT 'x' AS id")), ID)
    with (
        split(made, LENIENT, []) as checked,
        pytest.raises(DestinationError, match="cannot write the bad rows"),
    ):
        Quarantine(spark, str(tmp_path / "file")).write(batch(), 7, checked)


def test_nothing_to_read_is_no_error(files: QuarantineFiles, tmp_path: Path) -> None:
    assert files.pipelines() == [] and files.attempts(PIPELINE) == set()
    (tmp_path / "bad [rows]" / PIPELINE / "_delta_log").mkdir(parents=True)
    assert files.attempts(PIPELINE) == set()
    assert not files.summaries(PIPELINE, of("batch-1")) and not files.rows(PIPELINE, of("batch-1"))


def test_a_remote_quarantine_needs_spark() -> None:
    with pytest.raises(NeedsSpark, match="s3a://bucket/bad is not a local folder"):
        QuarantineFiles("s3a://bucket/bad")


@pytest.mark.slow
def test_files_are_read_as_spark_reads_them(
    spark: SparkSession,
    put: Callable[..., None],
    quarantine: Quarantine,
    files: QuarantineFiles,
    tmp_path: Path,
) -> None:
    """Through retries, replays and drops, with a checkpoint after every second commit."""
    spark.conf.set("spark.databricks.delta.properties.defaults.checkpointInterval", "2")
    put(["x", "1", "y", "z"], "it's %20 \\ batch")
    put(["b", "a"], "batch-2")
    put(["1", "2", "b", "é"], "batch-2", attempt=2, fence=8)
    read_alike(quarantine, files, rows=7)
    one = files.rows(PIPELINE, of("batch-2", fence=8))[0]
    assert quarantine.remove(PIPELINE, of("batch-2", fence=8), [one.id]) == 1
    assert quarantine.remove(PIPELINE, of("batch-2")) == 2
    read_alike(quarantine, files, rows=4)
    assert quarantine.remove(PIPELINE, of("it's %20 \\ batch")) == 3
    put(["last"], "batch-3")
    read_alike(quarantine, files, rows=2)
    log = tmp_path / "bad [rows]" / PIPELINE / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    for commit in sorted(log.glob("*.json"))[:3]:  # as log clean-up does
        commit.unlink()
    read_alike(quarantine, files, rows=2)
    quarantine.remove(PIPELINE, [*of("batch-2", fence=8), *of("batch-3")])
    assert files.attempts(PIPELINE) == quarantine.attempts(PIPELINE) == set()


def test_what_the_files_leave_open_needs_spark(
    spark: SparkSession, put: Callable[..., None], files: QuarantineFiles, tmp_path: Path
) -> None:
    spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
    put(["x", "y"])
    with pytest.raises(NeedsSpark, match="features of Delta"):
        files.attempts(PIPELINE)
    log = tmp_path / "bad [rows]" / PIPELINE / "_delta_log"
    first = log / f"{0:020}.json"
    whole = first.read_text()
    first.rename(log / f"{1:020}.json")
    with pytest.raises(NeedsSpark, match="commits are missing"):
        files.attempts(PIPELINE)
    first.write_text(whole[: len(whole) // 2])
    with pytest.raises(NeedsSpark, match=PIPELINE):
        files.rows(PIPELINE, of("batch-1"))


def test_a_version_with_a_lost_file_needs_spark(
    put: Callable[..., None], files: QuarantineFiles, tmp_path: Path
) -> None:
    put(["x", "y"])
    for file in (tmp_path / "bad [rows]" / PIPELINE).glob("*.parquet"):
        file.unlink()
    with pytest.raises(NeedsSpark, match=PIPELINE):
        files.rows(PIPELINE, of("batch-1"))
