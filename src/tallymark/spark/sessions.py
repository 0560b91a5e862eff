"""Starts Spark once, hands out isolated sessions, stops what it started.

A session runs on an embedded Spark, on a cluster, or on a Spark Connect server. The server needs neither Java
nor JARs on this machine.
"""

from __future__ import annotations

import atexit
import copy
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from tallymark.errors import RuntimeUnavailable
from tallymark.spark.launch_settings import (
    SparkConfig,
    SparkNeeds,
    is_connect,
    is_local,
    required_settings,
    user_settings,
)
from tallymark.spark.session_settings import is_kept_at_default

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tallymark.spark.jvm import SharedJvm

_SEPARATOR = "\x1f"  # between settings: a character that none of them has
_DEFAULT_STORE = "spark.hadoop.fs.defaultFS"  # where a path without a scheme is
_CONFIGURED_ELSEWHERE = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR")  # folders of settings that may name a store
_RUNTIME_PREFIXES = ("spark.sql.", "spark.databricks.", "fs.")  # fs: a session's own credentials of stores
_CONNECT_PORT = 15002
_PROBE_SECONDS = 10
_UNFINALIZED = "UnfinalizedSession"
_PLAN_MODE = "formatted"


class Sessions:
    """One Spark for a project. Nothing starts, and no PySpark is imported, before a session is asked for.

    A process can hold one embedded Spark only. If the user started it, it is used and never stopped. If
    another project did, both share it, and the last one stops it.
    """

    def __init__(
        self,
        config: SparkConfig,
        needs: Sequence[SparkNeeds],
        *,
        home: Path,
        on_progress: Callable[[str], None] | None = None,
    ):
        self._config = config
        self._needs = needs
        self._user = user_settings(config, needs)
        self._home = home.absolute()
        self._tell = on_progress or (lambda _: None)
        self._lock = threading.Lock()  # several pipelines ask at once; one starts Spark
        self._root: SparkSession | None = None
        self._jvm: SharedJvm | None = None
        self._is_callers = False
        self._opened: weakref.WeakSet[SparkSession] = weakref.WeakSet()  # on a Connect server, by us

    @classmethod
    def of(cls, spark: SparkSession, needs: Sequence[SparkNeeds]) -> Sessions:
        """Sessions beside the caller's own, classic or Connect, which is neither changed nor stopped."""
        made = cls(SparkConfig(), needs, home=Path())
        made._root = spark
        made._is_callers = True
        return made

    @property
    def started(self) -> bool:
        return self._root is not None

    def share_files(self) -> bool:
        """Whether a local path is the same file for Spark as for this process. Starts nothing: false means
        that only a session can tell."""
        if self._root is not None and not _is_stopped(self._root):
            return shares_files(self._root)
        elsewhere = any(os.environ.get(name) for name in _CONFIGURED_ELSEWHERE)
        return is_local(self._config.master) and _DEFAULT_STORE not in self._user and not elsewhere

    def isolated(self, on_progress: Callable[[str], None] | None = None) -> SparkSession:
        """A new session that shares no settings and no temporary views with any other. The caller that Spark
        starts for gets the progress of the start."""
        with self._lock:
            if self._root is None or _is_stopped(self._root):
                self._root = self._start(on_progress or self._tell)
            root = self._root
        _refuse_unmet(self._needs, root)
        session = self._beside(root)
        self._apply_settings(session, root)
        return session

    def archive_classes(self, warm_up: Callable[[SparkSession], object]) -> Path:
        """Writes the classes that `warm_up` uses to a file that later starts map. Spark must not run yet."""
        from tallymark.spark import jvm

        if jvm.running_session():
            raise RuntimeUnavailable(
                "a class archive can only be written by a new Java, but this process already runs Spark",
                hint="run `tallymark prepare`, which is a process of its own",
            )
        return jvm.archive_classes(self._config, self._needs, self._home, self._tell, warm_up)

    def stop(self) -> None:
        with self._lock:
            while self._opened:
                self._opened.pop().stop()
            if self._jvm is not None:
                self._jvm.leave()
            if not self._is_callers:
                self._root = self._jvm = None

    def _beside(self, root: SparkSession) -> SparkSession:
        if not is_connect_session(root):
            return root.newSession()
        session = _beside_connect(root)
        self._open_until_stop(session)
        return session

    def _open_until_stop(self, session: SparkSession) -> None:
        """A Connect session that is open when Python ends would wait forever for its channel to close."""
        if not self._opened:
            atexit.register(self.stop)
        self._opened.add(session)

    def _start(self, tell: Callable[[str], None]) -> SparkSession:
        if self._is_callers:
            raise RuntimeUnavailable(
                "the Spark session that Tallymark was given has been stopped",
                hint="pass a running session, or none: then Tallymark starts its own",
            )
        if is_connect(self._config.master):
            return self._start_connect(tell)
        from tallymark.spark import jvm

        session, self._jvm = jvm.join_or_start(self._config, self._needs, self._home, tell)
        return session

    def _start_connect(self, tell: Callable[[str], None]) -> SparkSession:
        from tallymark.spark.jvm import running_session

        if running_session():
            raise RuntimeUnavailable(
                "spark.master is a Spark Connect server, but this process already runs a classic Spark, "
                "which a Connect session would break",
                hint="use Spark Connect in a process of its own, or stop the other session first",
            )
        tell(f"connecting to {_without_token(self._config.master)}")
        if ignored := [key for key in self._user if not key.startswith(_RUNTIME_PREFIXES)]:
            tell(f"spark.conf: {', '.join(ignored)} belong to the server and are ignored")
        session = _connect(self._config.master)
        self._open_until_stop(session)
        return session

    def _apply_settings(self, session: SparkSession, root: SparkSession) -> None:
        """1. what the session must not have goes, which its Spark may have given it at its start
        2. settings of the caller's session and of tallymark.yaml hold
        3. but not against those on which the rows depend: with others, nothing is loaded
        """
        from pyspark.errors import AnalysisException

        has = _settings(session)
        never = {key for need in self._needs for key in need.never_inherited}
        for key in [key for key in has if key in never or is_kept_at_default(key)]:
            session.conf.unset(key)
            del has[key]
        wanted = {**_settings(root), **self._user}
        pinned = required_settings(self._needs)
        for key, value in wanted.items():
            if key in never or key in pinned or is_kept_at_default(key) or has.get(key) == value:
                continue
            if key.startswith(_RUNTIME_PREFIXES):
                # Not asked beforehand: `isModifiable` says no to settings of an extension not loaded yet.
                with suppress(AnalysisException):  # a static setting, which both sessions share anyway
                    session.conf.set(key, value)
        chosen = {
            key: wanted[key] if key in wanted and pin.accepts(wanted[key]) else pin.value
            for key, pin in pinned.items()
        }
        _set_all(session, {key: value for key, value in chosen.items() if has.get(key) != value})


def is_connect_session(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


@contextmanager
def settings_kept(session: SparkSession, needs: Sequence[SparkNeeds]) -> Iterator[None]:
    """Around a user's own program, which may set what it likes for its own frame."""
    before = _settings(session)
    try:
        yield
    finally:
        after, pinned = _settings(session), required_settings(needs)
        for key in [key for key in after if is_kept_at_default(key) and key not in before]:
            session.conf.unset(key)
        ours = {key: before[key] for key in before if key in pinned or is_kept_at_default(key)}
        _set_all(session, {key: value for key, value in ours.items() if after.get(key) != value})


def activate(session: SparkSession) -> None:
    """Types written as text are read by the settings of the session that is active in this thread."""
    if not is_connect_session(session):
        cast(Any, session)._jvm.SparkSession.setActiveSession(cast(Any, session)._jsparkSession)


@contextmanager
def active_session_kept() -> Iterator[None]:
    """Gives back the caller's active session: of this thread in Java, and of the process in PySpark."""
    context = None
    if "pyspark" in sys.modules:  # a run with nothing new does not import it
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context = SparkContext._active_spark_context
    if context is None:
        yield
        return
    kind = cast(Any, context._jvm).SparkSession
    theirs, was = SparkSession._activeSession, kind.getActiveSession()
    try:
        yield
    finally:
        if context._jsc is not None:  # else Spark was stopped meanwhile
            SparkSession._activeSession = theirs
            if was.isDefined():
                kind.setActiveSession(was.get())
            else:
                kind.clearActiveSession()


def is_embedded(session: SparkSession) -> bool:
    """Whether its workers live and die with this process. A client of Spark Connect cannot tell, and its
    checkpoints belong to another session than the rows they were made of."""
    if is_connect_session(session):
        return False
    return (session.conf.get("spark.master", "") or "").startswith("local")


def shares_files(session: SparkSession) -> bool:
    """Whether a path means the same to Spark as to this process: not on a Connect server, which may be on
    another machine, nor where Spark's default file system is a store."""
    if is_connect_session(session):
        return False
    hadoop = cast(Any, session.sparkContext)._jsc.hadoopConfiguration()
    return str(hadoop.get("fs.defaultFS")).startswith("file:")


def plan_text(frame: DataFrame) -> str:
    """What `explain` prints. It prints to the stdout of the whole process, so it cannot be used for this."""
    if is_connect_session(frame.sparkSession):
        return str(cast(Any, frame)._explain_string(mode=_PLAN_MODE)).strip()
    java = cast(Any, frame.sparkSession)._jvm.org.apache.spark.sql.api.python.PythonSQLUtils
    return str(java.explainString(cast(Any, frame)._jdf.queryExecution(), _PLAN_MODE)).strip()


def _refuse_unmet(needs: Sequence[SparkNeeds], session: SparkSession) -> None:
    """A server or a Databricks cluster loads extensions its own way; a classic session must name them."""
    if is_connect_session(session) or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    has = session.conf.get("spark.sql.extensions", "") or ""
    for need in needs:
        if need.extensions and need.title not in has:  # a vendor's runtime has a class name of its own
            packages = ",".join(package.coordinate for package in need.packages)
            settings = [
                f"spark.jars.packages={packages}",
                f"spark.sql.extensions={','.join(need.extensions)}",
                *(f"{key}={value}" for key, value in need.settings.items()),
            ]
            raise RuntimeUnavailable(
                f"the Spark session that runs in this process does not know {need.title}",
                hint=f"start it with {', '.join(settings[:-1])} and {settings[-1]}",
            )


def _settings(session: SparkSession) -> dict[str, str]:
    """Settings that a session can have of its own. They are read one by one: an answer of the JVM above 8 KiB
    comes in two packets, the second 40 ms after the first, and the list of JARs is long."""
    if is_connect_session(session):
        return session.conf.getAll
    java = cast(Any, session.conf)._jconf
    joined = cast(Any, session)._jvm.String.join(_SEPARATOR, java.getAllAsJava().keySet())
    return {
        key: str(java.get(key)) for key in str(joined).split(_SEPARATOR) if key.startswith(_RUNTIME_PREFIXES)
    }


def _set_all(session: SparkSession, settings: Mapping[str, str]) -> None:
    """In one go: one by one, some eighty calls take tens of milliseconds of each load."""
    if is_connect_session(session):
        try:
            cast(Any, session.conf)._set_all(settings, silent=True)
        except Exception:  # a server that knows no such request
            for key, value in settings.items():
                with suppress(Exception):
                    session.conf.set(key, value)
        _refuse_others(session, settings)
        return
    java = cast(Any, session)._jvm
    properties = java.java.util.Properties()
    properties.load(java.java.io.StringReader("\n".join(f"{key}={value}" for key, value in settings.items())))
    cast(Any, session)._jsparkSession.sessionState().conf().setConf(properties)


def _refuse_others(session: SparkSession, chosen: Mapping[str, str]) -> None:
    """A server may keep settings from its clients. What it does not have has its default."""
    has = _settings(session)
    for key, value in chosen.items():
        if has.get(key, value).lower() != value.lower():
            raise RuntimeUnavailable(
                f"{key} is {has[key]} and cannot be set to {value}, on which the rows of a load depend",
                hint=f"start Spark, the cluster or the server with {key}={value}",
                facts={"setting": key},
            )


def _is_stopped(session: SparkSession) -> bool:
    if is_connect_session(session):
        return bool(cast(Any, session).is_stopped)
    return session._sc._jsc is None


def _connect(url: str) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        _probe(url)
        session: SparkSession = SparkSession.builder.remote(url).create()
        _never_closed_by_the_collector(session)
        session.version  # noqa: B018  (nothing is sent before the first call)
    except Exception as problem:
        raise RuntimeUnavailable(
            f"the Spark Connect server {_without_token(url)} cannot be used: {str(problem).splitlines()[0]}",
            hint="check spark.master in tallymark.yaml and that the server is up",
        ) from problem
    return session


def _beside_connect(session: SparkSession) -> SparkSession:
    """A new session on the same server. Connect has no newSession, so it connects again the same way."""
    builder = copy.copy(cast(Any, session).client._builder)
    # An address that names a session would lead back into that very session.
    builder._params = {
        key: value for key, value in builder._params.items() if key != builder.PARAM_SESSION_ID
    }
    made = cast("SparkSession", cast(Any, type(session))(connection=builder))
    _never_closed_by_the_collector(made)
    return made


def _never_closed_by_the_collector(session: SparkSession) -> None:
    """Removes the finalizer; `stop` closes the session, or the end of the process does.

    Python may collect an unused session at any moment, also while PySpark hands work to the pool that all
    sessions share. The finalizer then waits forever for the lock of that pool, which its own thread holds."""
    given = type(session)
    if given.__name__ != _UNFINALIZED:
        body = {"__del__": lambda self: None, "__module__": given.__module__}
        session.__class__ = type(_UNFINALIZED, (given,), body)


def _without_token(url: str) -> str:
    return url.split(";", maxsplit=1)[0].rstrip("/")


def _probe(url: str) -> None:
    """Spark's client tries for ten minutes before it reports that nobody listens. This reports it at once."""
    if any(name.lower() in ("http_proxy", "https_proxy", "grpc_proxy") for name in os.environ):
        return  # the server is then reached through the proxy
    address = urlsplit("http" + url.removeprefix("sc"))
    socket.create_connection((address.hostname or "", address.port or _CONNECT_PORT), _PROBE_SECONDS).close()
