"""What we make is for its user alone, whatever the umask; what exists stays as open as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tallymark.cli.commands import export_rows
from tallymark.destinations.lakehouse.fact_files import FactFiles
from tallymark.ledger import open_ledger
from tallymark.model.private_files import made_private, open_private, private_folder

HELD_OPEN = """
import sys
from pathlib import Path
from tallymark.ledger import open_ledger
with open_ledger(sys.argv[1]) as ledger:
    ledger.start_run("shop", "run", host="", pid=1)
    for file in sorted(Path(sys.argv[2]).rglob("*")):
        print(file.name, oct(file.stat().st_mode & 0o777))
"""


@pytest.fixture(params=[0o000, 0o022, 0o077], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_mode & 0o777 for file in folder.rglob("*")}


def test_the_ledger_and_the_files_beside_it(tmp_path: Path) -> None:
    """SQLite removes -wal and -shm at the end, so a process looks while it has the ledger open."""
    url = f"sqlite:///{tmp_path}/.tallymark/ledger.db"
    done = subprocess.run(
        [sys.executable, "-c", HELD_OPEN, url, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        ".tallymark 0o700",
        "ledger.db 0o600",
        "ledger.db-shm 0o600",
        "ledger.db-wal 0o600",
    ]


def test_a_ledger_that_was_opened_to_others_stays_so(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o770)
    url = f"sqlite:///{folder}/ledger.db"
    open_ledger(url).close()
    (folder / "ledger.db").chmod(0o660)
    open_ledger(url).close()
    assert modes(tmp_path) == {"shared": 0o770, "shared/ledger.db": 0o660}


def test_exports_of_bad_rows(tmp_path: Path) -> None:
    export_rows(tmp_path / "out" / "bad.csv", [])
    assert modes(tmp_path) == {"out": 0o700, "out/bad.csv": 0o600}


def test_what_java_makes_in_a_folder_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine" / "silver.orders"
    private_folder(folder)
    (folder / "shared").write_text("")
    (folder / "shared").chmod(0o644)
    with made_private(folder):
        (folder / "_delta_log").mkdir()
        (folder / "_delta_log" / "0.json").write_text("")
    found = modes(folder)
    assert found == {"shared": 0o644, "_delta_log": 0o700, "_delta_log/0.json": 0o600}
    assert modes(tmp_path)["quarantine"] == 0o700


def test_markers_are_as_open_as_their_table(tmp_path: Path) -> None:
    rows = pa.record_batch({"a": [1]})
    for mode in (0o755, 0o700, 0o770):
        table = tmp_path / f"table-{mode:o}"
        table.mkdir()
        table.chmod(mode)
        FactFiles(table / "_tallymark" / "markers", "markers").add(rows.schema, [rows])
        found = modes(table)
        assert {found["_tallymark"], found["_tallymark/markers"]} == {mode}
        assert [found[name] for name in found if name.endswith(".parquet")] == [mode & 0o666]


def test_a_file_that_exists_is_not_made_anew(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("old ")
    (tmp_path / "log").chmod(0o640)
    with open_private(tmp_path / "log", "a") as file:
        file.write("new")
    assert (tmp_path / "log").read_text() == "old new"
    assert modes(tmp_path) == {"log": 0o640}
