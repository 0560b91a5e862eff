"""Remembered deletes as files beside a table of this machine, and as a Delta table beside others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tallymark.destinations.lakehouse import fact_files as delta_fact_files
from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.destinations.lakehouse.home import Folder
from tallymark.destinations.lakehouse.markers import LakehouseMarkers
from tallymark.destinations.lakehouse.tombstones import TombstoneStore
from tallymark.errors import DestinationError
from tallymark.model.plan import Tombstones
from tallymark.model.receipt import Counts, Marker
from tallymark.model.table import Column
from tallymark.spark.frames import local_frame
from tallymark.strategies.columns import parse

AS_OF = datetime(2026, 11, 1, 10, 15, 0, 123456, tzinfo=UTC)
Rows = list[tuple[Any, ...]]


def marker(number: int, as_of: datetime = AS_OF) -> Marker:
    return Marker(f"b{number}", "p", "k", number, number + 5, (f"h{number}",), as_of, "cdc", Counts())


@dataclass(frozen=True)
class Held:
    """The markers of a table that holds these loads."""

    spark: SparkSession
    numbers: Sequence[int]

    def commits(self) -> DataFrame:
        rows = [(f"b{n}", n, n + 5) for n in self.numbers]
        return local_frame(self.spark, [*rows], "batch_id string, sequence bigint, fence bigint")


@dataclass
class Memory:
    spark: SparkSession
    home: Folder

    @property
    def files(self) -> list[Path]:
        return sorted(Path(self.home.url).glob("_tallymark/deletes/[!.]*"))

    @property
    def tombstones(self) -> TombstoneStore:
        return TombstoneStore(self.spark, self.home)

    def add(
        self, number: int, rows: Rows, schema: str = "id int, lsn bigint", as_of: datetime = AS_OF
    ) -> None:
        self.tombstones.add(local_frame(self.spark, rows, schema), marker(number, as_of))

    def valid(
        self, *held: int, columns: str = "id int, lsn bigint", before: datetime = AS_OF - timedelta(days=30)
    ) -> Rows:
        schema = self.spark.createDataFrame([], columns).schema
        wanted = tuple(Column(f.name, f.dataType.simpleString()) for f in schema)
        markers = cast(LakehouseMarkers, Held(self.spark, held))
        found = self.tombstones.valid(Tombstones(wanted, parse("SELECT 1"), before), markers)
        assert found.schema.simpleString() == schema.simpleString()
        return sorted((tuple(row) for row in found.distinct().collect()), key=repr)


@pytest.fixture(params=["files", pytest.param("delta table", marks=pytest.mark.slow)])
def memory(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Memory:
    return Memory(spark, Folder(str(tmp_path), tmp_path if request.param == "files" else None))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Memory:
    return Memory(spark, Folder.at(tmp_path))


def test_only_loads_that_the_table_holds_have_a_say(memory: Memory) -> None:
    assert memory.valid(1) == []
    memory.add(1, [(1, 10), (1, 11)])
    memory.add(2, [(2, 20)])
    memory.add(3, [(None, 30)], as_of=AS_OF + timedelta(days=31))
    assert memory.valid(1, 3) == [(1, 10), (1, 11), (None, 30)]
    assert memory.valid(2) == [(2, 20)]
    assert memory.valid(1, 2, 3, before=AS_OF + timedelta(microseconds=1)) == [(None, 30)]


def test_what_is_older_than_the_retention_is_removed(memory: Memory) -> None:
    for number in (1, 2, 3):
        memory.add(number, [(number, number)], as_of=AS_OF + timedelta(microseconds=number))
    memory.tombstones.forget(AS_OF + timedelta(microseconds=2))
    assert memory.valid(1, 2, 3) == [(2, 2), (3, 3)]


def test_a_file_of_many_loads_loses_only_its_old_rows(files: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 2)
    for number in (1, 2, 3):
        files.add(number, [(number, number)], as_of=AS_OF + timedelta(microseconds=number))
    assert len(files.files) == 1
    files.tombstones.forget(AS_OF + timedelta(microseconds=2))
    [left] = files.files
    assert sorted(pq.read_table(left)["id"].to_pylist()) == [2, 3]
    files.tombstones.forget(AS_OF + timedelta(days=1))
    assert files.files == []


def test_many_files_become_one_for_each_schema(files: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 4)
    monkeypatch.setattr(delta_fact_files, "_ROW_GROUP", 3)
    expected = []
    for number in range(12):
        files.add(number, [(number, number)], "id int, lsn bigint" if number % 3 else "id bigint, lsn bigint")
        expected.append((number, number))
        assert len(files.files) <= 4
    assert files.valid(*range(12), columns="id bigint, lsn bigint") == sorted(expected, key=repr)
    assert files.valid(3, 4, columns="id bigint, lsn bigint") == [(3, 3), (4, 4)]


def test_a_large_file_stays_as_it_is(files: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 2)
    monkeypatch.setattr(delta_fact_files, "LARGE_BYTES", 20_000)
    files.add(1, [(number, number * 7919) for number in range(5_000)])
    [large] = files.files
    for number in range(2, 6):
        files.add(number, [(-number, number)])
    assert large in files.files
    assert len(files.files) <= 3
    assert len(files.valid(*range(1, 6))) == 5_004


@pytest.mark.slow
def test_one_load_may_delete_many_rows(files: Memory) -> None:
    rows = files.spark.range(300_000, numPartitions=3).selectExpr("cast(id AS int) id", "id + 1 AS lsn")
    files.tombstones.add(rows, marker(1))
    assert [file.suffix for file in files.files] == [".parquet"]
    assert len(files.valid(1)) == 300_000


WIDER = {
    "int → bigint": ("int", "bigint", 7, 7),
    "smallint → int": ("smallint", "int", 7, 7),
    "int → decimal(12,2)": ("int", "decimal(12,2)", 7, Decimal("7.00")),
    "decimal": ("decimal(6,2)", "decimal(12,4)", Decimal("1234.56"), Decimal("1234.5600")),
    "float → double": ("float", "double", 0.5, 0.5),
    "date → timestamp_ntz": ("date", "timestamp_ntz", AS_OF.date(), datetime(2026, 11, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WIDER)
def test_a_key_that_became_wider_is_the_same_key(case: str, files: Memory) -> None:
    narrow, wide, before, after = WIDER[case]
    files.add(1, [(before, 1)], f"id {narrow}, lsn bigint")
    assert files.valid(1, columns=f"id {wide}, lsn bigint") == [(after, 1)]
    files.add(2, [(after, 2)], f"id {wide}, lsn bigint")
    assert files.valid(1, 2, columns=f"id {wide}, lsn bigint") == [(after, 1), (after, 2)]
    elsewhere = Memory(files.spark, Folder(files.home.url))
    assert elsewhere.valid(1, 2, columns=f"id {wide}, lsn bigint") == [(after, 1), (after, 2)]


@pytest.mark.parametrize(
    "place",
    ["files", *(pytest.param(p, marks=pytest.mark.slow) for p in ("files read elsewhere", "delta table"))],
)
def test_other_columns_are_other_tombstones(place: str, files: Memory) -> None:
    """Above all, a key that they lack is not the NULL of a truncate."""
    if place == "delta table":
        files.home = Folder(files.home.url)
    files.add(1, [(1, 10)], "ID int, lsn bigint")
    files.add(2, [(2, 20, 200)], "id int, lsn bigint, pos bigint")
    files.add(3, [("x", 30)], "code string, lsn bigint")
    if place == "files read elsewhere":
        files.home = Folder(files.home.url)
    assert files.valid(1, 2, 3, columns="id int, lsn bigint") == [(1, 10), (2, 20)]
    assert files.valid(1, 2, 3, columns="Id int, LSN bigint, pos bigint") == [(2, 20, 200)]
    assert files.valid(1, 2, 3, columns="code string, lsn bigint") == [("x", 30)]
    assert files.valid(1, 2, 3, columns="other string, lsn bigint") == []


MOMENT = datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC)
KEYS: dict[str, Any] = {
    "decimal(38,10)": Decimal("1234567890123456789012345678.0123456789"),
    "decimal(5,2)": Decimal("-123.45"),
    "string": "a 'quoted' `näme`\n",
    "binary": b"\x00\xff",
    "timestamp_ntz": MOMENT.replace(tzinfo=None),
    "date": MOMENT.date(),
    "boolean": True,
    "tinyint": -5,
    "array<int>": [1, None],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_type_comes_back_as_it_was(
    kind: str, files: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 1)
    files.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    odd = f'`a key, with "quotes" and.dots` {kind}, batch_id string'
    expected = bytearray(KEYS[kind]) if kind == "binary" else KEYS[kind]
    for number in (1, 2):
        files.add(number, [(KEYS[kind], "y"), (None, "n")], odd)
        assert files.valid(number, columns=odd) == sorted([(expected, "y"), (None, "n")], key=repr)
    assert len(files.files) == 1


def test_a_moment_means_the_same_in_every_session(files: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its time zone and its way to write moments are."""
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 1)
    schema = "at timestamp, lsn bigint"
    files.spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    for number, zone in enumerate(["Europe/Berlin", "America/New_York"], start=1):
        files.spark.conf.set("spark.sql.session.timeZone", zone)
        files.add(number, [(MOMENT, number)], schema)
    assert files.spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    assert len(files.files) == 1
    found = files.valid(1, 2, columns=schema)
    assert [(at.astimezone(UTC), lsn) for at, lsn in found] == [(MOMENT, 1), (MOMENT, 2)]


def test_the_name_of_a_folder_is_no_glob(spark: SparkSession, tmp_path: Path) -> None:
    memory = Memory(spark, Folder.at(tmp_path / "a [1] {b,c} * ? #" / "day=7"))
    memory.add(1, [(1, 10)])
    assert memory.valid(1) == [(1, 10)]


@pytest.mark.parametrize("rubbish", [b"", b"not parquet", b"PAR1" + b"\0" * 40 + b"PAR1"])
def test_a_file_that_is_none_of_ours_is_named(rubbish: bytes, files: Memory) -> None:
    files.add(1, [(1, 10)])
    junk = files.files[0].with_name("notes.parquet")
    junk.write_bytes(rubbish)
    for use in (lambda: files.valid(1), lambda: files.tombstones.forget(AS_OF)):
        with pytest.raises(DestinationError, match=str(junk)) as told:
            use()
        assert "backup" in (told.value.hint or "")
    junk.unlink()
    pq.write_table(pa.table({"id": [1], "lsn": [5]}), junk)  # whole, but without our stamps
    assert files.valid(1) == [(1, 10)]


def test_files_stay_when_one_of_them_cannot_be_read(files: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_fact_files, "MOST_FILES", 2)
    files.add(1, [(1, 10)])
    files.add(2, [(2, 20)])
    broken = files.files[0]
    whole = broken.read_bytes()
    broken.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])  # the footer is whole, the rows are not
    with pytest.raises(DestinationError, match=str(broken)):
        files.add(3, [(3, 30)])
    assert len(files.files) == 3
    broken.write_bytes(whole)
    assert files.valid(1, 2, 3) == [(1, 10), (2, 20), (3, 30)]


def test_a_file_that_goes_while_it_is_looked_at_is_looked_for_again(
    files: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.add(1, [(1, 10)])
    listed = FactFiles.listed
    looks: list[int] = []

    def with_one_that_is_gone(self: FactFiles) -> list[Path]:
        looks.append(1)
        return [*listed(self), *([self.folder / "gone.parquet"] if len(looks) == 1 else [])]

    monkeypatch.setattr(FactFiles, "listed", with_one_that_is_gone)
    assert files.valid(1) == [(1, 10)]
    assert len(looks) == 2


def test_a_write_that_fails_leaves_nothing(files: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    files.add(1, [(1, 10)])

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            files.add(2, [(2, 20)])
    assert len(files.files) == 1
    assert [*(Path(files.home.url) / "_tallymark/deletes").glob(".*")] == []


def test_what_a_dead_process_left_is_not_read_and_goes_in_time(files: Memory) -> None:
    files.add(1, [(1, 10)])
    left = files.files[0].parent / ".dead"
    left.mkdir()
    (left / "part-0.parquet").write_bytes(files.files[0].read_bytes()[:50])
    assert files.valid(1) == [(1, 10)]
    os.utime(left, (AS_OF.timestamp(), AS_OF.timestamp()))
    files.tombstones.forget(AS_OF)
    assert left.exists()
    files.tombstones.forget(AS_OF + timedelta(seconds=1))
    assert not left.exists()
