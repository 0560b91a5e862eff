from __future__ import annotations

from pathlib import Path

import pytest

from tallymark.spark.failures import explain

LOG = Path("/project/.tallymark/logs/spark.log")

IVY_SUMMARY = """
:: resolving dependencies :: org.apache.spark#spark-submit-parent-4cc9a3d1-46d8-47a1;1.0
:: problems summary ::
:::: WARNINGS
		module not found: no.such#thing_2.13;9.9
		::::::::::::::::::::::::::::::::::::::::::::::
		::          UNRESOLVED DEPENDENCIES         ::
		::::::::::::::::::::::::::::::::::::::::::::::
		:: no.such#thing_2.13;9.9: not found
		:: io.delta#delta-spark_4.1_2.13;4.4.0: not found
		::::::::::::::::::::::::::::::::::::::::::::::
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: no.such#thing_2.13;9.9: not found]
"""
IVY_DOWNLOAD = """
		::              FAILED DOWNLOADS            ::
		:: io.delta#delta-storage;4.4.0!delta-storage.jar
Exception in thread "main" java.lang.RuntimeException: [download failed: io.delta#delta-storage;4.4.0!delta-storage.jar]
"""


def test_jars_that_cannot_be_had_are_named() -> None:
    told = explain(IVY_SUMMARY, LOG, RuntimeError("[JAVA_GATEWAY_EXITED]"))
    assert told.message.endswith(": no.such:thing_2.13:9.9, io.delta:delta-spark_4.1_2.13:4.4.0")
    assert "connect to the network once" in told.hint
    assert "spark.jars" in told.hint
    assert str(LOG) in told.hint


def test_a_broken_download_names_its_jar() -> None:
    assert "io.delta:delta-storage:4.4.0" in explain(IVY_DOWNLOAD, LOG, RuntimeError()).message


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main", "this Java", "JAVA_HOME"),
        (
            "Error occurred during initialization: Module jdk.incubator.vector not found",
            "this Java",
            "tallymark[java]",
        ),
        ("Error: Could not reserve enough space for 999g object heap", "memory", "spark.driver.memory"),
        (
            "java.net.BindException: Cannot assign requested address: Service 'sparkDriver'",
            "port",
            "bindAddress",
        ),
        (
            "java.io.FileNotFoundException: /home/somebody/.ivy2.5.2/x (Permission denied)",
            "cannot be written",
            "spark.jars.ivy",
        ),
        (
            "ERROR StandaloneSchedulerBackend: All masters are unresponsive! Giving up.",
            "master",
            "spark.master",
        ),
        ("Unrecognized VM option 'UseFoo'", "options", "extraJavaOptions"),
    ],
)
def test_known_causes(line: str, message: str, hint: str) -> None:
    told = explain(f"some chatter\n{line}\n\tat java.base/somewhere\n", LOG, RuntimeError("gateway exited"))
    assert message in told.message
    assert line[:50] in told.message
    assert hint in told.hint
    assert str(LOG) in told.hint


def test_an_unknown_cause_shows_the_last_line_of_the_log() -> None:
    told = explain("first\nthe moon is in the wrong phase\n\tat java.base/x\n", LOG, RuntimeError("exited"))
    assert "the moon is in the wrong phase" in told.message
