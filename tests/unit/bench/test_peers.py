"""The benchmark's peers: what their scripts share, and how one is run. No peer is installed for this."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peers import environments, protocol, run_peer
from peers.run_peer import PeerResult, run_script

PEERS = Path(run_peer.__file__).parent
# A peer whose table is a number of rows, and a checksum: each batch is a file with an amount.
FAKE = """
import os, subprocess, sys, time
sys.path.insert(0, {peers!r})
from protocol import Totals, measure

class Fake:
    version = "1.2.3"
    def __init__(self, task):
        self.task, self.amounts = task, []
    def fill(self, files):
        print("filling")
        os.write(1, b"from below Python")
        time.sleep(0.3)
        self.amounts += [int(file.read_text()) for file in files]
    def apply(self, batch):
        {apply}
        self.amounts.append(int(batch.read_text()))
    def totals(self):
        return Totals(len(self.amounts), sum(self.amounts))

measure("fake", Fake, destinations=["here", "there"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "b.parquet").write_text("20")
    (tmp_path / "start" / "a.parquet").write_text("10")
    (tmp_path / "start" / "_SUCCESS").write_text("")
    for number in (1, 2, 3):
        (tmp_path / f"{number}.csv").write_text(str(number))
    return tmp_path


def run_fake(folder: Path, apply: str = "pass", limit_seconds: float = 20) -> PeerResult:
    script = folder / "fake.py"
    script.write_text(FAKE.format(peers=str(PEERS), apply=apply))
    batches = [str(folder / f"{number}.csv") for number in (1, 2, 3)]
    arguments = ["--work", str(folder), "--start", str(folder / "start"), "--destination", "here"]
    return run_script(
        "fake", [sys.executable, str(script), *arguments, "--batches", *batches], folder, limit_seconds
    )


def test_a_peer_gives_its_result_whatever_it_prints(folder: Path) -> None:
    result = run_fake(folder, apply="print('applying'); time.sleep(0.05)")
    assert result.not_measured == ""
    assert (result.peer, result.version) == ("fake", "1.2.3")
    assert (result.rows, result.checksum) == (5, 36)


def test_each_batch_is_timed_and_the_filling_is_not(folder: Path) -> None:
    result = run_fake(folder, apply="time.sleep({'1': 0, '2': 0.1, '3': 0}[batch.stem])")
    first, second, third = result.seconds
    assert second >= 0.1
    assert max(first, third) < 0.3


def test_a_peer_counts_its_own_memory_and_not_that_of_the_benchmark(folder: Path) -> None:
    ballast = bytearray(b"x" * (120 << 20))
    small = run_fake(folder)
    big = run_fake(folder, apply="bytearray(b'x' * (100 << 20))")
    assert len(ballast) / (1 << 20) > small.peak_memory_mib > 5
    assert big.peak_memory_mib > 100


def test_a_failing_peer_says_why(folder: Path) -> None:
    result = run_fake(folder, apply="raise RuntimeError('no such table')")
    assert result == PeerResult("fake", not_measured="failed: RuntimeError: no such table")


def test_a_result_that_is_no_result_is_reported(folder: Path) -> None:
    result = run_script("fake", [sys.executable, "-c", "print('hello')"], folder, 20)
    assert result.not_measured.startswith("its result cannot be read: ")


def test_a_slow_peer_is_stopped_with_all_that_it_started(folder: Path) -> None:
    child = "import time, pathlib; time.sleep(1.5); pathlib.Path('late').touch()"
    started = time.monotonic()
    result = run_fake(folder, f"subprocess.run([sys.executable, '-c', {child!r}])", limit_seconds=1)
    assert result == PeerResult("fake", not_measured="over 1 s")
    assert time.monotonic() - started < 2
    time.sleep(1)
    assert not (folder / "late").exists()


def test_a_peer_does_not_see_the_packages_of_the_benchmark(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "packages").mkdir()
    (folder / "packages" / "intruder.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(folder / "packages"))
    result = run_script("fake", [sys.executable, "-c", "import intruder"], folder, 20)
    assert result.not_measured == "failed: ModuleNotFoundError: No module named 'intruder'"


def test_arguments_are_refused_when_there_is_nothing_to_start_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    arguments = ["--work", str(folder), "--start", str(folder / "empty"), "--batches", str(folder / "1.csv")]
    with pytest.raises(SystemExit):
        protocol.task_from(arguments, [])
    assert "holds no Parquet files" in capsys.readouterr().err


def test_every_script_has_its_requirements() -> None:
    scripts = {path.stem for path in PEERS.glob("*.py") if "measure(" in path.read_text()} - {"protocol"}
    assert scripts | {"plot"} == {path.stem for path in environments.REQUIREMENTS.glob("*.txt")}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Environments in a folder of the test's own, without uv; the commands are noted and not run."""
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "envs")
    monkeypatch.setattr(environments, "UV", tmp_path / "no-uv")
    (tmp_path / "fake.txt").write_text("fake==1\n")
    return tmp_path


def test_an_environment_is_made_again_only_for_other_requirements(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def note(peer: str, command: list[str]) -> None:
        commands.append(command)
        python = places / "envs" / peer / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    monkeypatch.setattr(environments, "run", note)
    python = environments.python_of("fake")
    assert python == places / "envs" / "fake" / "bin" / "python"
    made = len(commands)
    assert made == 2
    environments.python_of("fake")
    assert len(commands) == made
    (places / "fake.txt").write_text("fake==2\n")
    environments.python_of("fake")
    assert len(commands) == 2 * made


def test_a_peer_that_cannot_be_installed_is_not_measured(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = [sys.executable, "-c", "import sys; print('no such package'); sys.exit(1)"]
    monkeypatch.setattr(environments, "commands_that_make", lambda *_: [fails])
    result = run_peer.run_peer("fake", places / "work", places, [places / "1.csv"])
    assert result == PeerResult("fake", not_measured="fake cannot be installed: no such package")
    unknown = run_peer.run_peer("unheard", places / "work", places, [places / "1.csv"])
    assert unknown.not_measured.startswith("unheard has no unheard.txt")


def test_half_an_environment_is_not_taken_for_a_whole_one(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "envs" / "fake" / "bin").mkdir(parents=True)
    (places / "envs" / "fake" / "bin" / "python").touch()
    fails = [sys.executable, "-c", "import sys; sys.exit(1)"]
    monkeypatch.setattr(environments, "commands_that_make", lambda *_: [fails])
    with pytest.raises(environments.PeerMissing):
        environments.python_of("fake")


def test_the_document_has_exactly_the_promised_fields(folder: Path) -> None:
    script = folder / "fake.py"
    script.write_text(FAKE.format(peers=str(PEERS), apply="pass"))
    arguments = ["--work", str(folder), "--start", str(folder / "start"), "--destination", "there"]
    command = [sys.executable, str(script), *arguments, "--batches", str(folder / "1.csv")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.count("\n") == 1
    assert list(json.loads(printed)) == [
        "peer",
        "version",
        "seconds",
        "rows",
        "checksum",
        "peak_memory_mib",
    ]
