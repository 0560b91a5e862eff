"""Errors of Spark in plain words: why it did not start, from its log, and why a query failed."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.errors import PySparkException

from tallymark.errors import RuntimeUnavailable
from tallymark.spark.java import INSTALL_JAVA

# Cause in the log, what to tell, what to do. The first that fits is the one: order matters.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"UnsupportedClassVersionError|getSubject is not supported|Module jdk\.incubator\.vector not found",
        "this Java cannot run Spark",
        INSTALL_JAVA,
    ),
    (
        r"JAVA_HOME is not set|java: not found|bin/java: No such file|Unable to locate a Java Runtime",
        "no Java could be started",
        INSTALL_JAVA,
    ),
    (
        r"Could not reserve enough space|Cannot allocate memory|insufficient memory|Too small maximum heap",
        "the machine does not give Spark the memory it asks for",
        "set spark.driver.memory lower under spark.conf in tallymark.yaml",
    ),
    (
        r"Unrecognized VM option|Unrecognized option|Could not create the Java Virtual Machine",
        "Java refuses its options",
        "correct spark.driver.extraJavaOptions under spark.conf, or unset JAVA_TOOL_OPTIONS",
    ),
    (r"No space left on device", "the disk is full", "free space where SPARK_LOCAL_DIRS or /tmp lives"),
    (
        r"Permission denied|AccessDenied|Read-only file system|Failed to create (?:local|a temp) dir",
        "a folder that Spark needs cannot be written",
        "set spark.local.dir and spark.jars.ivy under spark.conf to folders that you can write",
    ),
    (
        r"All masters are unresponsive|Connection refused|UnknownHostException|Could not parse Master URL",
        "the Spark master cannot be reached",
        "check spark.master in tallymark.yaml and that the cluster is up",
    ),
    (
        r"BindException|Can't assign requested address|failed after \d+ retries",
        "Spark cannot open a port",
        "set spark.driver.bindAddress and spark.driver.port under spark.conf to what this machine allows",
    ),
)

# Ivy's summary lists every coordinate that it could not find or download, one per line.
_UNRESOLVED = re.compile(r"(?m)^\s*:: ([\w.-]+)#([\w.-]+);([\w.-]+?)(?:!\S+|: not found)")


def explain(log: str, log_path: Path, problem: BaseException) -> RuntimeUnavailable:
    """The error to raise, made from what Spark wrote to its log since this start."""
    coordinates = unresolved(log)
    if coordinates:
        message = f"Spark cannot get these JARs: {', '.join(coordinates)}"
        hint = (
            "connect to the network once (they are kept for later), check the names under spark.packages, "
            "or put the JAR files on spark.jars under spark.conf in tallymark.yaml"
        )
    else:
        message, hint = _known_cause(log, str(problem))
    return RuntimeUnavailable(
        message,
        hint=f"{hint}; the full log is {log_path}",
        facts={"log": str(log_path), "packages": coordinates},
    )


def unresolved(log: str) -> list[str]:
    if "unresolved dependency" not in log and "download failed" not in log.lower():
        return []
    return list(dict.fromkeys(":".join(parts) for parts in _UNRESOLVED.findall(log)))


def _known_cause(log: str, problem: str) -> tuple[str, str]:
    text = f"{log}\n{problem}"
    for pattern, told, hint in _CAUSES:
        if line := re.search(f"^.*(?:{pattern}).*$", text, re.MULTILINE):
            return f"Spark did not start: {told} ({line[0].strip()[:200]})", hint
    return f"Spark did not start: {_last_line(log) or problem}", "run `tallymark doctor`"


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("\tat ")]
    return lines[-1][:300] if lines else ""


def condition(error: BaseException) -> str:
    """Spark's name of the error, such as TABLE_OR_VIEW_NOT_FOUND; empty if it has none."""
    if isinstance(error, PySparkException):
        named = error.getCondition()
        if named:
            return str(named)
    match = re.search(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]", str(error))
    return match[1] if match else ""


def reason(error: BaseException) -> str:
    """One line that says what went wrong: the innermost cause, else the first line."""
    lines = str(error).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    text = causes[-1] if causes else next((line for line in lines if line.strip()), type(error).__name__)
    return re.sub(r"^(?:[a-z]+\.)+([A-Z]\w+): ", r"\1: ", text.strip())[:500]


def lost_connection(error: BaseException) -> bool:
    """Whether the answer got lost, so that the statement may have succeeded."""
    if isinstance(error, ConnectionError | EOFError):
        return True
    kind = f"{type(error).__module__}.{type(error).__name__}"
    return kind.startswith("grpc.") or "Py4JNetworkError" in kind or "UNAVAILABLE" in str(error)[:300]
