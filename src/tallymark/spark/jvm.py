"""The JVM of a Spark that we start ourselves: launch, log file, JARs, stop."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tallymark.errors import RuntimeUnavailable
from tallymark.model.private_files import make_private_file, private_folder
from tallymark.model.section import redact
from tallymark.spark import jars
from tallymark.spark.failures import explain
from tallymark.spark.java import ClassArchive, Java, find_java
from tallymark.spark.launch_settings import SparkConfig, SparkNeeds, is_local, launch_settings

_LOG_LIMIT_BYTES = 8 << 20
_ARCHIVING_SECONDS = 300
# Everybody on the machine can read a command line, so only what Java and spark-submit need is on it. All else
# reaches Spark after its start, whatever it is called.
_NEEDED_TO_LAUNCH = re.compile(
    r"spark\.(master|app\.name|submit\.\w+|sql\.extensions|home|files|archives|pyspark\..+"
    r"|jars(\.(packages|excludes|repositories|ivy|ivySettings))?"
    r"|driver\.(memory|memoryOverhead|cores|host|bindAddress|port|extraJavaOptions|defaultJavaOptions"
    r"|extraClassPath|extraLibraryPath|userClassPathFirst)"
    r"|yarn\.(queue|archive|jars|principal|dist\..+|tags)|kubernetes\.(namespace|context|container\..+))"
)
_SECRET = re.compile(r"(?i)secret|passw|token|credential|\bkey\b|\bsas\b")


@dataclass(frozen=True)
class RunningJvm:
    session: SparkSession
    log: JvmLog

    def stop(self, patience_seconds: float = 30) -> None:
        self.session.stop()
        close_gateway(patience_seconds)
        self.log.finish()


class SharedJvm:
    """The JVM that projects of this process share. PySpark keeps one for each process, so this is counted for
    the whole process too: a project that closes must not stop a Spark that another one still uses."""

    _changing = threading.Lock()  # one thread starts Spark, also if several projects ask at once
    _current: SharedJvm | None = None

    def __init__(self, running: RunningJvm, launched_for: tuple[SparkConfig, tuple[SparkNeeds, ...]]):
        self.running = running
        self.launched_for = launched_for
        self._users = 0

    def leave(self) -> None:
        with SharedJvm._changing:
            self._users -= 1
            if self._users == 0 and SharedJvm._current is self:
                SharedJvm._current = None
                self.running.stop()


def join_or_start(
    config: SparkConfig, needs: Sequence[SparkNeeds], home: Path, tell: Callable[[str], None]
) -> tuple[SparkSession, SharedJvm | None]:
    """The Spark of this process, started if none runs. None for a Spark that the user started: it is not ours
    to stop."""
    wanted = (config, tuple(needs))
    with SharedJvm._changing:
        session, shared = running_session(), SharedJvm._current
        if session is None:
            shared = SharedJvm._current = SharedJvm(start(config, needs, home, tell), wanted)
            session = shared.running.session
        elif shared is None or shared.running.session.sparkContext is not session.sparkContext:
            return session, None
        elif shared.launched_for != wanted:
            tell(
                "Spark already runs in this process and keeps the settings that it was started with; "
                "of the settings of this project, only those of spark.sql apply"
            )
        shared._users += 1
        return session, shared


def running_session() -> SparkSession | None:
    """The classic Spark of this process, if one runs: ours of another project, or the user's."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession(SparkContext._active_spark_context)


def start(
    config: SparkConfig, needs: Sequence[SparkNeeds], home: Path, tell: Callable[[str], None]
) -> RunningJvm:
    launch = _Launch.of(config, needs, home)
    return launch.run(launch.archive.used_by(launch.settings) if launch.archive else launch.settings, tell)


def archive_classes(
    config: SparkConfig,
    needs: Sequence[SparkNeeds],
    home: Path,
    tell: Callable[[str], None],
    warm_up: Callable[[SparkSession], object],
) -> Path:
    """Writes the classes that `warm_up` uses into a file that later starts map."""
    launch = _Launch.of(config, needs, home)
    if launch.archive is None and is_local(config.master):
        start(config, needs, home, tell).stop()  # fetches the JARs: after it they are known
        launch = _Launch.of(config, needs, home)
    if launch.archive is None:
        raise RuntimeUnavailable(
            "classes can be kept only for an embedded Spark whose JARs are fetched by fixed coordinates",
            hint="set spark.master to local[*], and name JARs in `packages` with their versions",
        )
    running = launch.run(launch.archive.made_by(launch.settings), tell)
    tell("loading a few rows, so that Java loads its classes")
    try:
        try:
            warm_up(running.session)
        finally:
            tell("waiting for Java to write its archive")
            with suppress(subprocess.TimeoutExpired):  # `finish` finds what it did not write by then
                running.stop(_ARCHIVING_SECONDS)
        return launch.archive.finish(running.log.path)
    finally:
        launch.archive.discard_draft()


@dataclass(frozen=True)
class _Launch:
    """What a start needs: Java, settings, JARs. Found before the JVM starts."""

    config: SparkConfig
    needs: Sequence[SparkNeeds]
    home: Path
    java: Java
    asked: Mapping[str, str]  # the settings before the JARs were found
    settings: Mapping[str, str]
    resolved: jars.Resolved
    archive: ClassArchive | None  # None: the JARs are not known, or not on a path that Java keeps classes of

    @classmethod
    def of(cls, config: SparkConfig, needs: Sequence[SparkNeeds], home: Path) -> _Launch:
        java, shipped = find_java(home), _shipped_jars()
        asked = launch_settings(config, needs, home, frozenset(jar.name for jar in shipped))
        resolved = jars.Resolved.of(asked, jars.ivy_folder(asked, home))
        known = resolved.files() if is_local(config.master) else []
        resolved.check(known)
        settings = jars.on_class_path(asked, known) if known else asked
        archive = ClassArchive.of(java, [*shipped, *known], resolved.record.parent) if known else None
        return cls(config, needs, home, java, asked, settings, resolved, archive)

    def run(self, settings: Mapping[str, str], tell: Callable[[str], None]) -> RunningJvm:
        """Launches the JVM, its output to the log, and opens a session."""
        close_gateway()  # a JVM left by a stopped Spark would keep its old memory and JARs
        coordinates = filter(None, settings["spark.jars.packages"].split(","))
        needed = [package for need in self.needs for package in need.packages]
        tell(jars.download_notice(coordinates, needed, self.resolved.ivy) or "starting Spark")
        log = JvmLog(self.home / "logs" / "spark.log")
        python = _worker_python(self.config.master, settings)
        workers = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        try:
            with log.written_to() as output, _environment({**self.java.environment(), **workers}):
                context = _launch(settings, output, partial(self._check, tell=tell))
        except RuntimeUnavailable:
            close_gateway()
            self.resolved.forget()
            raise
        except Exception as problem:
            close_gateway()
            log.finish()
            self.resolved.forget()
            if self.archive:
                self.archive.forget()
            raise explain(log.text(), log.path, problem) from problem
        if is_local(self.config.master) and self.archive is None:
            self.resolved.remember(self.asked, context.getConf().get("spark.jars", "") or "")
        return RunningJvm(SparkSession(context), log)

    def _check(self, loaded: str, tell: Callable[[str], None]) -> None:
        if unpinned := self.resolved.check(jars.local_files(loaded)):
            tell(f"used as they are, without a pinned checksum: {', '.join(unpinned)}")


def close_gateway(patience_seconds: float = 30) -> None:
    """Ends the JVM. PySpark keeps it after `stop`, and would give it to the next session."""
    gateway: Any = SparkContext._gateway
    if gateway is None or SparkContext._active_spark_context is not None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    if gateway.proc is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=patience_seconds)


def _launch(settings: Mapping[str, str], output: int, check_jars: Callable[[str], None]) -> SparkContext:
    """`check_jars` sees the JARs between their download and the first class that is loaded from them."""
    public = [each for each in settings.items() if is_public(each[0])]
    at_launch = SparkConf(loadDefaults=False).setAll(public)
    gateway = launch_gateway(at_launch, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    # What was given at launch comes back from the JVM, with the JARs that it has resolved.
    later = [each for each in settings.items() if not is_public(each[0])]
    conf = SparkConf(_jvm=gateway.jvm).setAll(later)
    check_jars(conf.get("spark.jars") or "")
    return SparkContext(conf=conf, gateway=gateway)


def is_public(key: str) -> bool:
    """Whether the setting is given on the command line."""
    return _NEEDED_TO_LAUNCH.fullmatch(key) is not None and not _SECRET.search(key)


def _worker_python(master: str, settings: Mapping[str, str]) -> str:
    if "spark.pyspark.python" in settings:
        return settings["spark.pyspark.python"]
    # Without it, local workers take `python3` from PATH, which lacks our packages.
    return sys.executable if is_local(master) else os.environ.get("PYSPARK_PYTHON", sys.executable)


def _shipped_jars() -> list[Path]:
    spark_home = _find_spark_home()  # type: ignore[no-untyped-call]
    return list((Path(spark_home) / "jars").glob("*.jar"))


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Changes the environment for the launch only. PySpark takes it from nowhere else."""
    before = {key: os.environ.get(key) for key in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


class JvmLog:
    """The output of a JVM, without secrets. It comes through a pipe: what Java writes into a file of its own
    could only be hidden once others have had the time to read it."""

    def __init__(self, path: Path):
        self.path = path
        try:
            private_folder(path.parent)
            if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
                path.replace(path.with_suffix(".log.1"))
            make_private_file(path)
            self._file = path.open("ab")
        except OSError as problem:
            raise RuntimeUnavailable(
                f"Spark's log cannot be written: {problem}", hint=f"make {path.parent} writable"
            ) from problem
        self._begin = self._file.tell()
        self._copier: threading.Thread | None = None

    @contextmanager
    def written_to(self) -> Iterator[int]:
        """Gives what a process that starts meanwhile takes for its output."""
        source, output = os.pipe()
        self._copier = threading.Thread(target=self._copy, args=(source,), name="spark-log", daemon=True)
        self._copier.start()
        try:
            yield output
        finally:
            os.close(output)  # the process has its own

    def finish(self, patience_seconds: float = 10) -> None:
        """After the end of the process: waits for its last lines."""
        if self._copier is not None:
            self._copier.join(patience_seconds)

    def text(self) -> str:
        """What this process has written."""
        with self.path.open("rb") as log:
            log.seek(self._begin)
            return log.read().decode(errors="replace")

    def _copy(self, source: int) -> None:
        with os.fdopen(source, "rb") as lines, self._file as file:
            for line in lines:
                # A full disk must not stop Spark: it would wait for somebody to read on.
                with suppress(OSError):
                    file.write(redact(line.decode(errors="replace")).encode())
                    file.flush()
