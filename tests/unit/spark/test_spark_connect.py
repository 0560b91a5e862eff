"""Against a real Spark Connect service. Its clients are processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallymark.spark import Sessions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(sessions: Sessions) -> Iterator[str]:
    """The service of Spark Connect, in the Spark of the tests: a server of its own would start cold."""
    context = sessions.isolated().sparkContext
    service = context._jvm.org.apache.spark.sql.connect.service.SparkConnectService  # type: ignore[union-attr]
    service.start(context._jsc.sc())
    yield f"sc://127.0.0.1:{context.getConf().get('spark.connect.grpc.binding.port')}"


def client(program: str, cwd: Path, *arguments: str) -> str:
    """Runs with no Java within reach: a Connect client needs none. One that hangs says where before it ends."""
    running = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *arguments],
        cwd=cwd,
        env={"PATH": "", "HOME": str(cwd)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, told = running.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGABRT)
        output, told = running.communicate()
    assert running.returncode == 0, told
    return output


ISOLATED = """
    import sys
    from pathlib import Path
    from pyspark.sql import functions as F
    from tallymark.spark.launch_settings import SparkConfig
    from tallymark.spark import Sessions
    from tallymark.destinations.registry import spark_needs

    url, table = sys.argv[1:]
    conf = {"spark.sql.shuffle.partitions": 3, "spark.driver.memory": "9g"}
    told = []
    sessions = Sessions(SparkConfig(master=url, conf=conf), spark_needs(), home=Path("home"), on_progress=told.append)
    one, other = sessions.isolated(), sessions.isolated()
    assert one.session_id != other.session_id
    assert one.conf.get("spark.sql.session.timeZone") == "UTC"
    assert one.conf.get("spark.sql.shuffle.partitions") == "3"
    assert any("spark.driver.memory" in line for line in told), told
    one.range(1).createOrReplaceTempView("only_here")
    assert not other.catalog.tableExists("only_here")

    one.range(5).withColumn("twice", F.col("id") * 2).write.format("delta").save(table)
    assert other.read.format("delta").load(table).count() == 5
    assert not Path("home").exists()
    print("done")  # and Python must end, though nobody has stopped anything
"""

CALLERS_OWN = """
    import sys, uuid
    from pyspark.sql import SparkSession
    from tallymark.spark import Sessions
    from tallymark.destinations.registry import spark_needs

    callers = SparkSession.builder.remote(f"{sys.argv[1]}/;session_id={uuid.uuid4()}").create()
    callers.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    callers.conf.set("spark.sql.shuffle.partitions", "11")
    beside = Sessions.of(callers, spark_needs())
    ours = beside.isolated()
    assert ours.session_id != callers.session_id
    assert ours.conf.get("spark.sql.session.timeZone") == "UTC"
    assert ours.conf.get("spark.sql.shuffle.partitions") == "11"
    beside.stop()
    assert callers.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert callers.range(3).count() == 3
    assert SparkSession.getActiveSession() in (None, callers)
    print("done")
"""

WHOLE_LOAD = """
    import sys
    from pathlib import Path
    import tallymark as tm

    Path("tallymark.yaml").write_text(f"spark: {{master: '{sys.argv[1]}'}}")
    Path("pipelines/orders").mkdir(parents=True)
    Path("landing").mkdir()
    Path("pipelines/orders/config.yaml").write_text(
        "source: {files: 'landing/*.csv'}\\n"
        "columns: [{name: id, type: bigint}]\\n"
        "merge_strategy: upsert\\n"
        "unique_key: id\\n"
        "quarantine: {max_fraction: 1.0}\\n"
    )
    for folder, file, text in (
        ("new", "pipeline.sql", "-- @merge_strategy: incremental\\n-- @unique_key: id\\n-- @watermark_column: id\\n"
            "SELECT id, name FROM {{ ref('orders') }} {% if is_incremental() %} WHERE id > {{ watermark_value }} {% endif %}"),
        ("all", "pipeline.py", "def transform(ctx):\\n    return ctx.ref('orders').groupBy().count()\\n"),
    ):
        Path("pipelines", folder).mkdir()
        Path("pipelines", folder, file).write_text(text)
    Path("pipelines/all/config.yaml").write_text("merge_strategy: full_refresh")
    Path("landing/1.csv").write_text("id,name\\n1,a\\n2,b\\nx,c\\n")
    with tm.Project(".") as project:
        first = project.run().pipelines[0]
        assert first.counts.inserted == 2 and first.counts.rejected == 1, first.failures
        Path("landing/2.csv").write_text("id,name\\n2,z\\n3,c\\n")
        planned = project.plan("orders")[0]
        second, *transforms = project.run().pipelines
        assert planned.counts == second.counts, (planned, second.failures)
        assert (second.counts.inserted, second.counts.updated) == (1, 1)
        assert {t.pipeline: t.counts.inserted for t in transforms} == {"new": 1, "all": 1}, transforms
        assert project.preview("all").rows == ({"count": 3},)
        assert {report.outcome for report in project.run().pipelines} == {"nothing_new"}
        assert [row.row for row in project.quarantine_show("orders")] == [3]
    print("done")
"""

COLLECTED = """
    import gc, sys, threading
    from pathlib import Path
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
    from tallymark.spark.launch_settings import SparkConfig
    from tallymark.spark import Sessions
    from tallymark.destinations.registry import spark_needs

    sessions = Sessions(SparkConfig(master=sys.argv[1]), spark_needs(), home=Path("home"))
    kept, dropped = sessions.isolated(), [sessions.isolated()]
    dropped[0].range(1).collect()

    def collect_as_if_work_were_handed_over():
        with ExecutePlanResponseReattachableIterator._get_or_create_release_thread_pool()._shutdown_lock:
            dropped.clear()
            gc.collect()

    thread = threading.Thread(target=collect_as_if_work_were_handed_over, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the collector waits for ever"
    assert kept.range(3).count() == 3
    print("done")
"""

NO_SERVER = """
    from pathlib import Path
    from tallymark.spark.launch_settings import SparkConfig
    from tallymark.errors import RuntimeUnavailable
    from tallymark.spark import Sessions
    from tallymark.destinations.registry import spark_needs

    try:
        Sessions(SparkConfig(master="sc://127.0.0.1:1/;token=hidden-word"), spark_needs(), home=Path("home")).isolated()
    except RuntimeUnavailable as problem:
        print(problem)
"""


@pytest.mark.slow
def test_isolated_sessions_that_write_delta(server: str, tmp_path: Path) -> None:
    assert client(ISOLATED, tmp_path, server, str(tmp_path / "table")) == "done\n"


def test_a_session_that_python_collects_harms_no_other(server: str, tmp_path: Path) -> None:
    assert client(COLLECTED, tmp_path, server) == "done\n"


def test_a_whole_load(server: str, tmp_path: Path) -> None:
    assert client(WHOLE_LOAD, tmp_path, server) == "done\n"


def test_beside_the_callers_own_session(server: str, tmp_path: Path) -> None:
    assert client(CALLERS_OWN, tmp_path, server) == "done\n"


def test_a_server_that_is_not_there_is_told_at_once_and_without_the_token(tmp_path: Path) -> None:
    told = client(NO_SERVER, tmp_path)
    assert "sc://127.0.0.1:1 cannot be used" in told
    assert "hidden-word" not in told
