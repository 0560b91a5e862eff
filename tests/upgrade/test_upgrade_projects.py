"""A project, ledger and tables of the version before the rebuild, opened by today's code.

make_fixture.py says how they were made. Every test unpacks its own copy. What the tables must hold is computed by
the oracle, from the files in the copy's landing zones.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import tallymark as tm
from database_rows import duckdb_rows, postgres_rows, sqlite_rows
from delta_rs import rows_of
from oracle import Oracle, Row, canonical
from tallymark.model.report import Outcome, PipelineReport
from tallymark.model.settings import CdcSettings, MergeSettings, Scd2Settings, Strategy
from tallymark.spark import Sessions

ARCHIVE = Path(__file__).with_name("made_by_63d64fb.tar.gz")
POSTGRES = "TALLYMARK_UPGRADE_POSTGRES"
NO_SERVER = "postgresql://nobody@localhost:1/nothing"


@dataclass(frozen=True)
class OldProject:
    """An unpacked copy. Its rows are read past the product."""

    root: Path
    spark: SparkSession | None = None

    def open(self) -> tm.Project:
        return tm.Project(self.root, spark=self.spark)

    def run(self, pipeline: str, **options: Any) -> PipelineReport:
        with self.open() as project:
            return project.run(pipeline, **options).pipelines[0]

    def recover(self, pipeline: str) -> PipelineReport:
        with self.open() as project:
            return project.recover(pipeline)[0]

    def deliver(self, name: str, text: str) -> None:
        path = self.root / "landing" / name
        path.write_text(text)
        at = datetime(2026, 4, 1, tzinfo=UTC).timestamp()
        os.utime(path, (at, at))

    def reconfigure(self, pipeline: str, old: str, new: str, file: str = "config.yaml") -> None:
        path = self.root / "pipelines" / pipeline.replace(".", "/") / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def rows(self, pipeline: str) -> list[Row]:
        schema, name = pipeline.split(".")
        match DESTINATIONS.get(pipeline, schema):
            case "lake":
                return rows_of(self.root / "warehouse" / schema / name)
            case "lite":
                return sqlite_rows(self.root / "shop.sqlite", pipeline)
            case "duck":
                return duckdb_rows(self.root / "shop.duckdb", pipeline)
            case _:
                return postgres_rows(os.environ[POSTGRES], "upgrade_pg.stock")

    def files(self, zone: str) -> list[Path]:
        """Every content once, in the order in which it is loaded."""
        names = sorted((self.root / "landing" / zone).iterdir())
        return [path for path in names if "_again" not in path.name and "_bad" not in path.name]

    def delta_versions(self) -> dict[str, int]:
        """By pipeline, without tables of Tallymark's own."""
        folders = [log.parent for log in (self.root / "warehouse").glob("*/*/_delta_log")]
        return {f"{one.parent.name}.{one.name}": DeltaTable(str(one)).version() for one in folders}

    def open_batches(self, pipeline: str) -> list[str]:
        with self.open() as project:
            return [one.batch_id for one in project.history(pipeline, 1000) if one.state == "PROCESSING"]


DESTINATIONS = {"gold.facts": "duck", "gold.totals": "lake", "gold.returns": "lite"}


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


@dataclass(frozen=True)
class FileTable:
    """A table that is loaded from files."""

    settings: MergeSettings
    types: Types
    new_file: str
    required: tuple[str, ...] = ()  # columns without which a row is bad
    hidden: tuple[str, ...] = ()  # columns of the table that are not compared

    def expected(self, files: list[Path]) -> list[Row]:
        oracle = Oracle(self.settings)
        for file in files:
            oracle.load(
                [row for row in self.read(file) if all(row[name] is not None for name in self.required)]
            )
        return oracle.rows

    def read(self, file: Path) -> Iterator[Row]:
        with file.open() as lines:
            for line in csv.DictReader(lines):
                yield {name: self.types[name](text) if text else None for name, text in line.items()}


Types = Mapping[str, Callable[[str], Any]]  # column → how its text is read
ORDER_TYPES: Types = {
    "order_id": int,
    "status": str,
    "amount": Decimal,
    "note": str,
    "updated_at": instant,
}
ORDERS_HEAD = "order_id,status,amount,note,updated_at\n"
NEW_ORDERS = ORDERS_HEAD + (
    "4,sent,44.00,d,2026-04-01T08:00:00Z\n5,new,55.00,e,2026-04-01T09:00:00Z\n2,old,1.00,b,2026-02-01T09:00:00Z\n"
)
CUSTOMER_TYPES: Types = {"customer_id": int, "city": str, "changed_at": instant}
NEW_CUSTOMERS = "customer_id,city,changed_at\n2,Jena,2026-04-01T00:00:00Z\n3,Trier,2026-04-01T00:00:00Z\n"
ACCOUNT_TYPES: Types = {"op": str, "account_id": int, "owner": str, "lsn": int}
# Changes of 2 and 4 that are older than their deletes: the tombstones of the old version must hold.
NEW_ACCOUNTS = "op,account_id,owner,lsn\nU,2,Late,9\nI,4,Late,19\nU,1,Anna,30\nI,5,Eve,31\n"
INCREMENTAL = MergeSettings(Strategy.INCREMENTAL, unique_key=("order_id",), watermark_column="updated_at")
SCD2 = MergeSettings(
    Strategy.SCD2,
    unique_key=("customer_id",),
    scd2=Scd2Settings(effective_from="changed_at", current_flag="is_current"),
)
CDC = MergeSettings(Strategy.CDC, unique_key=("account_id",), cdc=CdcSettings("op", sequence_by=("lsn",)))

TABLES = {
    "lake.orders": FileTable(INCREMENTAL, ORDER_TYPES, NEW_ORDERS, required=("note",)),
    "lake.customers": FileTable(SCD2, CUSTOMER_TYPES, NEW_CUSTOMERS),
    "lake.accounts": FileTable(CDC, ACCOUNT_TYPES, NEW_ACCOUNTS),
    "lake.daily": FileTable(
        MergeSettings(Strategy.SNAPSHOT, partition_column="day"),
        {"day": date.fromisoformat, "shop": str, "sold": int},
        "day,shop,sold\n2026-03-02,west,8\n2026-04-01,west,9\n",
    ),
    "lite.orders": FileTable(
        MergeSettings(Strategy.UPSERT, unique_key=("order_id",)), ORDER_TYPES, NEW_ORDERS
    ),
    "lite.accounts": FileTable(CDC, ACCOUNT_TYPES, NEW_ACCOUNTS),
    "duck.orders": FileTable(INCREMENTAL, ORDER_TYPES, NEW_ORDERS),
    "duck.customers": FileTable(SCD2, CUSTOMER_TYPES, NEW_CUSTOMERS),
    "pg.stock": FileTable(
        MergeSettings(Strategy.UPSERT, unique_key=("item",)),
        {"item": str, "pieces": int},
        "item,pieces\nnail,90\nrivet,7\n",
    ),
}


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldProject:
    """Without PostgreSQL, which nothing may ask for."""
    monkeypatch.setenv(POSTGRES, NO_SERVER)
    root = tmp_path / "shop"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    move_ledger(root, {made(root)["folder"]: str(root)})
    return OldProject(root)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(self: Sessions) -> SparkSession:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(Sessions, "isolated", started)


@pytest.fixture
def old(unpacked: OldProject, spark: SparkSession) -> OldProject:
    return OldProject(unpacked.root, spark)


@pytest.fixture
def old_with_server(
    old: OldProject, postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[OldProject]:
    url = postgres()
    monkeypatch.setenv(POSTGRES, url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((old.root / "postgres.sql").read_bytes())
    with old.open() as project:
        place = project.destination("pg").open(lambda: old.spark).table("upgrade_pg.stock").key  # type: ignore[arg-type, return-value]
    move_ledger(old.root, {made(old.root)["postgres"]: place.removeprefix("postgres:").rpartition(":")[0]})
    yield old
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA upgrade_pg CASCADE")


def made(root: Path) -> dict[str, str]:
    return dict(json.loads((root / "made.json").read_text()))


def move_ledger(root: Path, places: Mapping[str, str]) -> None:
    """A ledger holds the absolute places of files and tables, and a copy is elsewhere."""
    with closing(sqlite3.connect(root / ".tallymark" / "ledger.db")) as ledger, ledger:
        tables = [name for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            for _, column, kind, *_ in ledger.execute(f"PRAGMA table_info({table})").fetchall():
                if kind in ("TEXT", "JSON"):
                    for before, after in places.items():
                        ledger.execute(
                            f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (before, after)
                        )


def comparable(rows: list[Row]) -> list[Any]:
    """Without provenance, with times in UTC: naive ones are of this machine's zone."""
    return canonical(
        [
            {
                name: value.astimezone(UTC) if isinstance(value, datetime) else value
                for name, value in row.items()
                if not name.startswith("_")
            }
            for row in rows
        ]
    )


def zone_of(pipeline: str) -> str:
    return pipeline.replace(".", "_")


@pytest.mark.usefixtures("no_spark")
def test_status_and_history_are_read(unpacked: OldProject) -> None:
    """Replays are batches without files."""
    with unpacked.open() as project:
        status = {one.pipeline: one for one in project.status()}
        records = project.history(limit=1000)
    assert {name: one.files for name, one in status.items()} == {
        "duck.big_orders": {"COMMITTED": 1},
        "duck.customers": {"COMMITTED": 2},
        "duck.orders": {"COMMITTED": 2},
        "gold.facts": {"COMMITTED": 4, "PROCESSING": 1},
        "gold.returns": {"COMMITTED": 2},
        "gold.totals": {"COMMITTED": 2, "PROCESSING": 1},
        "lake.accounts": {"COMMITTED": 2},
        "lake.customers": {"COMMITTED": 2},
        "lake.daily": {"COMMITTED": 3},
        "lake.events": {"COMMITTED": 2, "FAILED": 1},
        "lake.orders": {"COMMITTED": 2, "DUPLICATE": 1, "PROCESSING": 1},
        "lite.accounts": {"COMMITTED": 2},
        "lite.big_orders": {"COMMITTED": 1},
        "lite.orders": {"COMMITTED": 2, "DUPLICATE": 1, "PROCESSING": 1},
        "pg.stock": {"COMMITTED": 2},
    }
    committed = {record.batch_id: record for record in records if record.state == "COMMITTED"}
    assert all(record.receipt is not None and record.receipt.sequence for record in committed.values())
    assert sorted(r.pipeline for r in records if r.state == "PROCESSING") == [
        "duck.orders",
        "gold.facts",
        "gold.totals",
        "lake.orders",
        "lite.orders",
    ]
    [failed] = status["lake.events"].failed_files
    assert (Path(failed.path), failed.attempts) == (unpacked.root / "landing/lake_events/2_bad.csv", 1)
    assert "event_id" in failed.error


@pytest.mark.usefixtures("no_spark")
def test_runs_are_read(unpacked: OldProject) -> None:
    """Five of them were killed, and their leases have expired."""
    with unpacked.open() as project:
        runs = project.runs(limit=1000)
        records = [project.run_record(run.run_id) for run in runs]
        batches = {record.batch_id for record in project.history(limit=1000)}
    states = Counter(str(run.state) for run in runs)
    assert (states["ABANDONED"], states["FAILED"]) == (5, 1)
    assert states.keys() == {"ABANDONED", "FAILED", "SUCCEEDED"}
    assert {run.command for run in runs} == {"run", "replay"}
    assert {batch.batch_id for record in records for batch in record.batches} == batches


@pytest.mark.parametrize("pipeline", ["lake.orders", "gold.facts", "duck.orders"])
def test_recover_records_what_the_table_holds(pipeline: str, old: OldProject) -> None:
    """Killed between commit and record: files, a window of a transform, and a replay."""
    rows = comparable(old.rows(pipeline))
    found = old.recover(pipeline)
    assert (len(found.recovered), found.still_open, found.failures) == (1, (), ())
    assert old.open_batches(pipeline) == []
    assert old.recover(pipeline).recovered == ()
    assert comparable(old.rows(pipeline)) == rows


@pytest.mark.parametrize("pipeline", ["lite.orders", "gold.totals"])
def test_recover_leaves_open_what_was_not_applied(pipeline: str, old: OldProject) -> None:
    rows = comparable(old.rows(pipeline))
    found = old.recover(pipeline)
    assert (found.recovered, len(found.still_open), found.failures) == ((), 1, ())
    assert comparable(old.rows(pipeline)) == rows


@pytest.mark.parametrize(
    "pipeline", ["lake.daily", "lite.orders", "lite.accounts", "duck.orders", "duck.customers"]
)
def test_new_files_are_loaded(pipeline: str, old: OldProject) -> None:
    loads_new_files(pipeline, old)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["lake.orders", "lake.customers", "lake.accounts"])
def test_new_files_are_merged_into_delta_tables(pipeline: str, old: OldProject) -> None:
    loads_new_files(pipeline, old)


def test_new_files_are_loaded_into_postgres(old_with_server: OldProject) -> None:
    loads_new_files("pg.stock", old_with_server)


def loads_new_files(pipeline: str, old: OldProject) -> None:
    table, zone = TABLES[pipeline], zone_of(pipeline)
    old.deliver(f"{zone}/4.csv", table.new_file)
    report = old.run(pipeline)
    assert report.outcome is Outcome.LOADED, report.failures
    rows = comparable(old.rows(pipeline))
    assert rows == comparable(table.expected(old.files(zone)))
    again = old.run(pipeline)
    assert (again.outcome, again.receipts, again.recovered) == (Outcome.NOTHING_NEW, (), ())
    old.deliver(f"{zone}/5_again.csv", old.files(zone)[-1].read_text())  # a content that was loaded
    assert old.run(pipeline).receipts == ()
    assert comparable(old.rows(pipeline)) == rows


@pytest.mark.slow
def test_a_run_of_the_whole_project(old_with_server: OldProject) -> None:
    """Open batches come first, then everything else that waits. The run after it changes nothing."""
    old = old_with_server
    for pipeline, table in TABLES.items():
        old.deliver(f"{zone_of(pipeline)}/4.csv", table.new_file)
    with old.open() as project:
        reports = {one.pipeline: one for one in project.run().pipelines}
    views = {"lite.big_orders": Outcome.NOTHING_NEW, "duck.big_orders": Outcome.NOTHING_NEW}
    others = {"lake.events": Outcome.FAILED, "gold.returns": Outcome.NOTHING_NEW, **views}
    assert {name: one.outcome for name, one in reports.items()} == {
        name: others.get(name, Outcome.LOADED) for name in reports
    }
    for pipeline, table in TABLES.items():
        expected = table.expected(old.files(zone_of(pipeline)))
        assert comparable(old.rows(pipeline)) == comparable(expected), pipeline
    versions = old.delta_versions()
    with old.open() as project:
        assert not [one for one in project.history(limit=1000) if one.state == "PROCESSING"]
        again = project.run().pipelines
    assert [one.pipeline for one in again if one.outcome is not Outcome.NOTHING_NEW] == ["lake.events"]
    assert old.delta_versions() == versions


def test_a_file_that_failed_is_loaded_once_it_is_requeued(old: OldProject) -> None:
    report = old.run("lake.events")
    assert (report.outcome, report.receipts) == (Outcome.FAILED, ())
    old.reconfigure(
        "lake.events", "quarantine: {max_fraction: 0, max_rows: 0}", "quarantine: {max_fraction: 1}"
    )
    with old.open() as project:
        assert project.requeue("lake.events") == 1
    report = old.run("lake.events")
    assert (report.outcome, report.counts.inserted, report.counts.rejected) == (Outcome.LOADED, 1, 1)
    assert sorted(row["event_id"] for row in old.rows("lake.events")) == [1, 2, 4, 5]


@pytest.mark.slow
def test_a_query_goes_on_from_its_watermark(old: OldProject) -> None:
    """lake.orders was left open, so its reader meets rows of the old load and of a new one."""
    facts = {row["order_id"]: row for row in old.rows("gold.facts")}
    newest = max(row["updated_at"] for row in facts.values())
    old.deliver("lake_orders/4.csv", NEW_ORDERS)
    assert old.run("lake.orders").outcome is Outcome.LOADED
    for row in old.rows("lake.orders"):
        updated_at = row["updated_at"].astimezone().replace(tzinfo=None)
        if updated_at > newest:
            fact = {"order_id": row["order_id"], "doubled": row["amount"] * 2, "updated_at": updated_at}
            facts[row["order_id"]] = fact
    report = old.run("gold.facts")
    assert (report.outcome, len(report.recovered), len(report.receipts)) == (Outcome.LOADED, 1, 1)
    assert comparable(old.rows("gold.facts")) == comparable(list(facts.values()))
    assert report.counts.total == 3  # 3 and 4 of the open batch, 5 of the new file
    assert old.run("gold.facts").outcome is Outcome.NOTHING_NEW


def test_a_query_is_asked_again(old: OldProject) -> None:
    window = {"since": "2026-03-01", "until": "2026-03-02"}
    report = old.run("gold.facts", **window)
    assert (len(report.recovered), report.failures) == (1, ())
    report = old.run("gold.facts", full_refresh=True)
    assert report.outcome is Outcome.LOADED, report.failures
    found = {row["order_id"]: row["doubled"] for row in old.rows("gold.facts")}
    assert found == {row["order_id"]: row["amount"] * 2 for row in old.rows("lake.orders")}
    assert old.run("gold.facts").outcome is Outcome.NOTHING_NEW


@pytest.mark.slow
def test_an_open_result_is_made_of_the_inputs_that_it_was_pinned_to(old: OldProject) -> None:
    """The open batch of gold.totals reads lake.daily as it was, then a second one reads what came since."""
    pinned = totals(TABLES["lake.daily"].expected(old.files("lake_daily")))
    old.deliver("lake_daily/4.csv", TABLES["lake.daily"].new_file)
    assert old.run("lake.daily").outcome is Outcome.LOADED
    report = old.run("gold.totals")
    assert (report.outcome, report.failures) == (Outcome.LOADED, ())
    assert [receipt.total for receipt in report.receipts] == [len(pinned), len(pinned) + 1]
    assert old.delta_versions()["gold.totals"] == int(report.receipts[-1].version)
    expected = totals(TABLES["lake.daily"].expected(old.files("lake_daily")))
    assert {row["day"]: row["sold"] for row in old.rows("gold.totals")} == expected
    assert old.run("gold.totals").outcome is Outcome.NOTHING_NEW


def totals(rows: list[Row]) -> dict[date, int]:
    return {
        day: sum(row["sold"] for row in rows if row["day"] == day) for day in {row["day"] for row in rows}
    }


def test_a_query_over_a_landing_zone_knows_the_files_it_has_read(old: OldProject) -> None:
    assert old.run("gold.returns").outcome is Outcome.NOTHING_NEW
    old.deliver("returns/3.csv", "return_id,reason\n2,lost\n3,gift\n")
    old.deliver("returns/1.csv", "return_id,reason\n1,broken\n")  # the same content at a later time
    (old.root / "landing/returns/2.csv").unlink()
    assert old.run("gold.returns").outcome is Outcome.LOADED
    found = {row["return_id"]: row["reason"] for row in old.rows("gold.returns")}
    assert found == {1: "broken", 2: "lost", 3: "gift"}


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("destination", ["lite", "duck"])
def test_a_view_is_kept_until_its_query_changes(destination: str, unpacked: OldProject) -> None:
    pipeline, orders = f"{destination}.big_orders", f"{destination}.orders"
    assert unpacked.run(pipeline).outcome is Outcome.NOTHING_NEW
    assert seen_by_view(unpacked, destination) == big(unpacked.rows(orders), 20)
    unpacked.reconfigure(pipeline, "amount > 20", "amount > 30", "pipeline.sql")
    assert unpacked.run(pipeline).outcome is Outcome.LOADED
    assert seen_by_view(unpacked, destination) == big(unpacked.rows(orders), 30)
    assert unpacked.run(pipeline).outcome is Outcome.NOTHING_NEW


def big(orders: list[Row], above: int) -> list[int]:
    return sorted(row["order_id"] for row in orders if row["amount"] > above)


def seen_by_view(old: OldProject, destination: str) -> list[int]:
    if destination == "lite":
        with closing(sqlite3.connect(old.root / "shop.sqlite")) as database:
            rows = database.execute('SELECT order_id FROM "lite.big_orders"').fetchall()
    else:
        with duckdb.connect(str(old.root / "shop.duckdb")) as database:
            rows = database.execute("SELECT order_id FROM shop.duck.big_orders").fetchall()
    return sorted(order for (order,) in rows)


@pytest.mark.usefixtures("no_spark")
def test_quarantined_rows_are_read(unpacked: OldProject) -> None:
    """A row of lake.orders was replayed, so it is deleted from the quarantine; the other one is there."""
    with unpacked.open() as project:
        found = {one.pipeline: (one.rows, one.files, one.reasons) for one in project.quarantine_list()}
        missing = (1, 1, {"required value is missing": 1})
        assert found == {"duck.orders": missing, "lake.orders": missing}
        [row] = project.quarantine_show("lake.orders")
    assert (Path(row.file).name, row.row, row.column) == ("2.csv", 4, "note")
    assert json.loads(row.raw) == {
        "order_id": "8",
        "status": "new",
        "amount": "80.00",
        "note": None,
        "updated_at": "2026-03-02T09:30:00Z",
    }


@pytest.mark.slow
def test_quarantined_rows_are_replayed(old: OldProject) -> None:
    old.reconfigure("lake.orders", "{name: note, type: string, required: true}", "{name: note, type: string}")
    with old.open() as project:
        report = project.quarantine_replay("lake.orders")
        assert (len(report.recovered), report.counts.inserted, report.failures) == (1, 1, ())
        assert project.quarantine_list("lake.orders") == []
        assert project.quarantine_replay("lake.orders").receipts == ()
    orders = FileTable(INCREMENTAL, ORDER_TYPES, "")
    assert comparable(old.rows("lake.orders")) == comparable(orders.expected(old.files("lake_orders")))


def test_a_replay_that_was_killed_is_not_applied_again(old: OldProject) -> None:
    """Its rows are in the table and still in the quarantine."""
    rows = comparable(old.rows("duck.orders"))
    with old.open() as project:
        assert [summary.rows for summary in project.quarantine_list("duck.orders")] == [1]
        report = project.quarantine_replay("duck.orders")
        assert (len(report.recovered), report.receipts, report.failures) == (1, (), ())
        assert project.quarantine_list("duck.orders") == []
    assert comparable(old.rows("duck.orders")) == rows


@pytest.mark.parametrize("destination", ["lake", "lite"])
def test_frames_of_the_library_are_known_by_their_ids(
    destination: str, old: OldProject, spark: SparkSession
) -> None:
    folder = old.root / "warehouse/library/rates"

    def merge(content_id: str, rows: str) -> tm.Receipt:
        frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, name)")
        load: dict[str, Any] = {"content_id": content_id, "strategy": "upsert", "unique_key": "id"}
        if destination == "lake":
            return tm.merge(frame, folder, **load)
        with old.open() as project:
            return tm.merge(frame, "library_rates", destination=project.destination("lite"), **load)

    def names() -> dict[int, str]:
        found = (
            rows_of(folder)
            if destination == "lake"
            else sqlite_rows(old.root / "shop.sqlite", "library_rates")
        )
        return {row["id"]: row["name"] for row in found}

    assert merge("rates-1", "(1, 'other'), (9, 'nine')").already_applied
    assert names() == {1: "one", 2: "TWO", 3: "three"}
    assert merge("rates-3", "(3, 'THREE'), (4, 'four')").counts.changes == 2
    assert names() == {1: "one", 2: "TWO", 3: "THREE", 4: "four"}


@pytest.mark.slow
def test_a_lost_ledger_is_rebuilt_from_the_markers(old: OldProject) -> None:
    """Markers of the old version prove its loads to the new one."""
    shutil.rmtree(old.root / ".tallymark")
    for pipeline in ("lite.orders", "duck.customers", "lake.accounts"):
        table, zone = TABLES[pipeline], zone_of(pipeline)
        found = old.recover(pipeline)
        assert (len(found.recovered), found.failures) == (2, ())
        old.deliver(f"{zone}/4.csv", table.new_file)
        assert old.run(pipeline).outcome is Outcome.LOADED
        assert comparable(old.rows(pipeline)) == comparable(table.expected(old.files(zone)))
