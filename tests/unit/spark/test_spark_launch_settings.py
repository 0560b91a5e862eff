from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession

from tallymark.destinations.delta import DELTA_PACKAGE
from tallymark.destinations.registry import spark_needs
from tallymark.errors import ConfigError, RuntimeUnavailable
from tallymark.spark import AVRO_PACKAGE, jars
from tallymark.spark.jvm import is_public
from tallymark.spark.launch_settings import SparkConfig, cores, launch_settings

SHIPPED = frozenset({"hadoop-client-api-3.4.2.jar", "jackson-core-2.21.2.jar"})


def settings(tmp_path: Path, shipped: frozenset[str] = SHIPPED, **config: object) -> dict[str, str]:
    return launch_settings(SparkConfig.model_validate(config), spark_needs(), tmp_path, shipped)


def test_the_users_settings_win(tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": 7, "spark.ui.enabled": True, "spark.driver.memory": "1500m"}
    made = settings(tmp_path, conf=conf)
    assert made["spark.sql.shuffle.partitions"] == "7"
    assert made["spark.ui.enabled"] == "true"
    assert made["spark.driver.memory"] == "1500m"


def test_the_users_lists_join_ours(tmp_path: Path) -> None:
    conf = {
        "spark.sql.extensions": "my.Extension",
        "spark.driver.extraJavaOptions": "-Dmine=1",
        "spark.jars.packages": "a:b:1",
    }
    made = settings(tmp_path, conf=conf, packages=["c:d:2"])
    assert made["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,my.Extension"
    assert made["spark.driver.extraJavaOptions"].endswith(" -XX:+UseParallelGC -Dmine=1")
    assert made["spark.jars.packages"].split(",") == [DELTA_PACKAGE, AVRO_PACKAGE, "c:d:2", "a:b:1"]


def test_a_collector_of_the_users_own_is_the_only_one(tmp_path: Path) -> None:
    """Java refuses to start with two."""
    made = settings(tmp_path, conf={"spark.driver.extraJavaOptions": "-XX:+UseG1GC"})
    assert "UseParallelGC" not in made["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.ansi.enabled", False),
        ("spark.sql.session.timeZone", "Europe/Paris"),
        ("spark.sql.caseSensitive", True),
    ],
)
def test_what_would_change_the_rows_is_refused(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        settings(tmp_path, conf={key: value})


def test_a_required_setting_may_be_repeated(tmp_path: Path) -> None:
    assert settings(tmp_path, conf={"spark.sql.ansi.enabled": True})["spark.sql.ansi.enabled"] == "true"


def test_a_cluster_gets_no_embedded_tuning(tmp_path: Path) -> None:
    local, cluster = settings(tmp_path), settings(tmp_path, master="spark://host:7077")
    for key in (
        "spark.driver.host",
        "spark.driver.memory",
        "spark.sql.shuffle.partitions",
        "spark.ui.enabled",
    ):
        assert key in local
        assert key not in cluster
    assert cluster["spark.sql.extensions"] == local["spark.sql.extensions"]


@pytest.mark.parametrize(("master", "expected"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4)])
def test_cores(master: str, expected: int) -> None:
    assert cores(master) == expected


def test_all_cores() -> None:
    assert cores("local[*]") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "brought",
    [
        {"conf": {"spark.jars": "/opt/delta-spark_4.1_2.13-4.4.0.jar"}},
        {"packages": ["io.delta:delta-spark_4.1_2.13:4.4.1"]},
        {"shipped": frozenset({"delta-spark_4.1_2.13-4.4.0.jar"})},
    ],
)
def test_a_delta_that_the_user_brings_is_not_fetched(tmp_path: Path, brought: dict[str, Any]) -> None:
    assert DELTA_PACKAGE not in settings(tmp_path, **brought)["spark.jars.packages"]


def test_what_spark_ships_is_not_fetched_again(tmp_path: Path) -> None:
    assert settings(tmp_path)["spark.jars.excludes"] == "*:hadoop-client-api,*:jackson-core"


def test_the_ivy_folder_that_the_user_names(tmp_path: Path) -> None:
    assert jars.ivy_folder({"spark.jars.ivy": "/srv/ivy"}, tmp_path) == Path("/srv/ivy")


def test_a_home_that_cannot_be_written_gives_way_to_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "_home_folders", lambda: [Path("/proc/nowhere"), Path("/nonexistent")])
    assert jars.ivy_folder({}, tmp_path) == tmp_path / "ivy"
    assert settings(tmp_path)["spark.jars.ivy"] == str(tmp_path / "ivy")


def test_a_home_that_can_be_written_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_home_folders", lambda: [tmp_path])
    assert "spark.jars.ivy" not in settings(tmp_path)


def test_a_download_is_announced_once(tmp_path: Path) -> None:
    coordinates = [DELTA_PACKAGE, "a.b:c_2.13:1.0"]
    needed = spark_needs()[0].packages
    assert jars.download_notice(coordinates, needed, tmp_path) == (
        "downloading Delta 4.4.0 (about 13 MB), a.b:c_2.13:1.0, once"
    )
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "io.delta_delta-spark_4.1_2.13-4.4.0.jar").touch()
    (tmp_path / "jars" / "a.b_c_2.13-1.0.jar").touch()
    assert jars.download_notice(coordinates, needed, tmp_path) == ""


ASKED = {"spark.jars.packages": "a:b:1", "spark.jars.excludes": "*:c"}


@pytest.fixture
def ivy(tmp_path: Path) -> Path:
    for name in ("a_b-1.jar", "a_needed-2.jar"):
        (tmp_path / "ivy" / "jars").mkdir(parents=True, exist_ok=True)
        _jar(tmp_path / "ivy" / "jars" / name)
    return tmp_path / "ivy"


def _jar(file: Path) -> None:
    with ZipFile(file, "w") as jar:
        jar.writestr("some.class", "")


def loaded(ivy: Path) -> str:
    own = [f"file://{ivy}/jars/{name}" for name in ("a_b-1.jar", "a_needed-2.jar")]
    return ",".join([*own, "file:///opt/mine.jar", "hdfs://host/theirs.jar"])


def test_resolved_files_are_remembered_without_the_users_own(ivy: Path) -> None:
    assert jars.Resolved.of(ASKED, ivy).files() == []
    jars.Resolved.of(ASKED, ivy).remember(ASKED, loaded(ivy))
    known = jars.Resolved.of(ASKED, ivy).files()
    assert known == [ivy / "jars" / "a_b-1.jar", ivy / "jars" / "a_needed-2.jar"]
    made = jars.on_class_path({**ASKED, "spark.driver.extraClassPath": "/opt/x"}, known)
    assert made["spark.driver.extraClassPath"].split(os.pathsep) == [*map(str, known), "/opt/x"]
    assert made["spark.jars.packages"] == ""


def test_other_packages_missing_files_and_failed_starts_are_resolved_again(ivy: Path) -> None:
    resolved = jars.Resolved.of(ASKED, ivy)
    resolved.remember(ASKED, loaded(ivy))
    assert jars.Resolved.of({**ASKED, "spark.jars.packages": "a:b:2"}, ivy).files() == []
    assert jars.Resolved.of({**ASKED, "spark.jars.excludes": ""}, ivy).files() == []
    (ivy / "jars" / "a_needed-2.jar").unlink()
    assert resolved.files() == []
    (ivy / "jars" / "a_needed-2.jar").write_bytes(b"PK half of it")
    assert resolved.files() == []
    _jar(ivy / "jars" / "a_needed-2.jar")
    assert resolved.files()
    resolved.record.write_text(__file__)
    assert resolved.files() == []
    resolved.remember(ASKED, loaded(ivy))
    assert resolved.files()
    resolved.forget()
    assert resolved.files() == []


@pytest.mark.parametrize("package", ["a:b:1-SNAPSHOT", "a:b:latest.release", "a:b:[1,2)", "a:b:1.+"])
def test_versions_that_move_are_resolved_each_time(ivy: Path, package: str) -> None:
    asked = {**ASKED, "spark.jars.packages": package}
    jars.Resolved.of(asked, ivy).remember(asked, loaded(ivy))
    assert jars.Resolved.of(asked, ivy).files() == []


def test_a_folder_that_cannot_be_written_is_no_failure(ivy: Path) -> None:
    (ivy / "tallymark").touch()
    jars.Resolved.of(ASKED, ivy).remember(ASKED, loaded(ivy))
    assert jars.Resolved.of(ASKED, ivy).files() == []


PINNED_JAR = "io.delta_delta-storage-4.4.0.jar"


@pytest.fixture
def with_pinned(ivy: Path, monkeypatch: pytest.MonkeyPatch) -> jars.Resolved:
    _jar(ivy / "jars" / PINNED_JAR)
    found = sha256((ivy / "jars" / PINNED_JAR).read_bytes()).hexdigest()
    monkeypatch.setattr(jars, "pins", lambda: {PINNED_JAR: found})
    return jars.Resolved.of(ASKED, ivy)


def test_a_jar_that_differs_from_its_pin_is_refused(with_pinned: jars.Resolved) -> None:
    file = with_pinned.ivy / "jars" / PINNED_JAR
    assert with_pinned.check([file, file.with_name("a_b-1.jar")]) == ["a_b-1.jar"]
    with ZipFile(file, "a") as jar:
        jar.writestr("evil.class", "")
    with pytest.raises(RuntimeUnavailable, match="nothing of it was loaded") as caught:
        with_pinned.check([file])
    expected = jars.pins()[PINNED_JAR]
    found = sha256(file.read_bytes()).hexdigest()
    assert caught.value.facts == {"jar": str(file), "expected": expected, "found": found}
    assert all(fact in caught.value.message for fact in (str(file), expected, found))


def test_a_jar_is_hashed_once_for_each_file(
    with_pinned: jars.Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_pinned.ivy / "jars" / PINNED_JAR
    hashed: list[Path] = []
    hash_file = jars._sha256

    def counted(path: Path) -> str:
        hashed.append(path)
        return hash_file(path)

    monkeypatch.setattr(jars, "_sha256", counted)
    for _ in range(3):
        with_pinned.check([file])
    assert hashed == [file]
    content, times = file.read_bytes(), file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as someone would who hides a change
    with_pinned.check([file])
    assert hashed == [file, file]
    (with_pinned.record.parent / "checked.json").write_text("[half")
    with_pinned.check([file])
    assert len(hashed) == 3


def test_the_pins_are_those_of_the_jars_that_are_used(spark: SparkSession) -> None:
    loaded = jars.local_files(str(spark.sparkContext.getConf().get("spark.jars") or ""))
    kept = jars.default_ivy_folder()
    assert kept is not None
    used = loaded or sorted((kept / "jars").glob("io.delta*.jar"))
    assert jars.Resolved.of(ASKED, used[0].parent.parent).check(used) == []


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.fs.azure.sas.container.account.blob.core.windows.net",
        "spark.hadoop.fs.azure.account.key.account.dfs.core.windows.net",
        "spark.hadoop.parquet.encryption.key.list",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.named.by.its.author",
        "spark.ssl.ui.keyPassword",
        "spark.driver.extraPassword",
        "spark.jars.repositoriesToken",
    ],
)
def test_what_may_be_a_secret_is_not_on_the_command_line(key: str) -> None:
    assert not is_public(key)


def test_what_java_needs_is_on_the_command_line(tmp_path: Path) -> None:
    made = settings(tmp_path, conf={"spark.driver.memory": "1g", "spark.jars.repositories": "https://a"})
    public = {key for key in made if is_public(key)}
    needed = {"spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions", "spark.jars.packages"}
    assert needed | {"spark.jars.repositories", "spark.jars.excludes"} <= public
