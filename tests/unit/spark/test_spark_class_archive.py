from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tallymark.errors import RuntimeUnavailable
from tallymark.spark import jvm
from tallymark.spark.java import ClassArchive, Java
from tallymark.spark.launch_settings import SparkConfig

OPTIONS = "spark.driver.extraJavaOptions"
JAVA = Java(Path("/bin/true"), "17.0.15", "PATH", None)  # takes every archive


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "spark.jar"
    path.write_bytes(b"classes")
    return path


def test_other_jars_or_another_java_have_another_archive(tmp_path: Path, jar: Path) -> None:
    def place(java: Java) -> Path:
        return ClassArchive.of(java, [jar], tmp_path).place

    first = place(JAVA)
    assert place(Java(Path("/project/.tallymark/java/bin/java"), JAVA.version, "PATH", None)) == first
    assert place(Java(JAVA.executable, "21.0.8", "PATH", None)) != first
    jar.write_bytes(b"other classes")
    assert place(JAVA) != first


def write(archive: ClassArchive, content: bytes) -> None:
    """What Java does at its end."""
    options = archive.made_by({OPTIONS: ""})[OPTIONS]
    Path(options.removeprefix(' "-XX:ArchiveClassesAtExit=').removesuffix('"')).write_bytes(content)


def test_an_archive_is_used_once_it_is_finished(tmp_path: Path, jar: Path) -> None:
    archive = ClassArchive.of(JAVA, [jar], tmp_path / "my jars")
    archive.place.parent.mkdir()
    settings = {OPTIONS: "-Dmine=1"}
    assert archive.used_by(settings) == settings
    write(archive, b"classes")
    assert archive.used_by(settings) == settings  # another process must not map half a file
    file = archive.finish(tmp_path / "spark.log")
    assert archive.used_by(settings)[OPTIONS] == f'-Dmine=1 "-XX:SharedArchiveFile={file}"'
    write(archive, b"made again, with other classes")
    assert archive.finish(tmp_path / "spark.log") == archive.file != file
    assert not file.exists()


def test_a_file_that_was_cut_off_is_not_used(tmp_path: Path, jar: Path) -> None:
    archive = ClassArchive.of(JAVA, [jar], tmp_path)
    write(archive, b"classes")
    archive.finish(tmp_path / "spark.log").write_bytes(b"clas")
    assert archive.used_by({OPTIONS: ""}) == {OPTIONS: ""}


def test_after_a_failed_start_it_is_gone(tmp_path: Path, jar: Path) -> None:
    archive = ClassArchive.of(JAVA, [jar], tmp_path)
    write(archive, b"classes")
    archive.finish(tmp_path / "spark.log")
    archive.forget()
    assert archive.used_by({OPTIONS: ""}) == {OPTIONS: ""}


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/var/mine.jsa", "-Xshare:off"])
def test_what_the_user_says_of_archives_holds(tmp_path: Path, jar: Path, own: str) -> None:
    archive = ClassArchive.of(JAVA, [jar], tmp_path)
    write(archive, b"classes")
    archive.finish(tmp_path / "spark.log")
    assert archive.used_by({OPTIONS: own}) == {OPTIONS: own}
    with pytest.raises(RuntimeUnavailable, match=OPTIONS):
        archive.made_by({OPTIONS: own})


def test_a_java_that_wrote_nothing_is_told(tmp_path: Path, jar: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="loads work as before") as caught:
        ClassArchive.of(JAVA, [jar], tmp_path).finish(tmp_path / "spark.log")
    assert "spark.log" in caught.value.hint


def test_an_archive_on_which_java_crashes_is_thrown_away(tmp_path: Path, jar: Path) -> None:
    crashes = tmp_path / "java"
    crashes.write_text("#!/bin/sh\nkill -BUS $$\n")
    crashes.chmod(0o755)
    archive = ClassArchive.of(Java(crashes, "17.0.15", "PATH", None), [jar], tmp_path)
    write(archive, b"half of it")
    with pytest.raises(RuntimeUnavailable, match="loads work as before"):
        archive.finish(tmp_path / "spark.log")
    assert archive.file is None
    archive.discard_draft()
    assert sorted(tmp_path.iterdir()) == [crashes, jar]


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "sc://127.0.0.1:15002"])
def test_only_an_embedded_spark_keeps_classes(tmp_path: Path, master: str) -> None:
    with pytest.raises(RuntimeUnavailable, match="only for an embedded Spark") as caught:
        jvm.archive_classes(SparkConfig(master=master), (), tmp_path, print, print)
    assert "local[*]" in caught.value.hint


@pytest.mark.big
@pytest.mark.timeout(900)
def test_a_start_after_prepare_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    loaded = tmp_path / "classes.txt"
    conf = {"spark.driver.memory": "1g", OPTIONS: f'"-Xlog:class+load:file={loaded}"'}
    (tmp_path / "tallymark.yaml").write_text(json.dumps({"spark": {"master": "local[2]", "conf": conf}}))
    prepared = tallymark(tmp_path, "prepare", "--json")
    archive = Path(json.loads(prepared)["result"]["archive"])
    try:
        loaded.unlink()
        tallymark(tmp_path, "doctor")
        lines = loaded.read_text().splitlines()
        from_archive = sum("shared objects file (top)" in line for line in lines)
        assert from_archive > len(lines) / 2
    finally:
        archive.unlink()


def tallymark(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("tallymark"), *words],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
