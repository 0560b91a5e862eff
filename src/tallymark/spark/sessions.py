"""Starts Spark once, hands out isolated sessions, stops what it started."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tallymark.errors import RuntimeUnavailable
from tallymark.model.session import SHARES_FILES
from tallymark.spark import connect
from tallymark.spark.jars import DELTA_PACKAGE
from tallymark.spark.options import SparkConfig
from tallymark.spark.settings import DELTA_CATALOG, DELTA_EXTENSION, REQUIRED, is_connect, user_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.spark.jvm import Engine

_BETWEEN = "\x1f"  # settings: a character that none of them has
_RUNTIME_PREFIXES = ("spark.sql.", "spark.databricks.")
# They mark a commit as the caller's. On a session of ours, Delta would skip or mislabel our own commits.
_NEVER_INHERITED = frozenset(
    {
        "spark.databricks.delta.write.txnAppId",
        "spark.databricks.delta.write.txnVersion",
        "spark.databricks.delta.commitInfo.userMetadata",
    }
)


class Sessions:
    """One Spark for a project. Nothing starts, and no PySpark is imported, before a session is asked for.

    A Spark that already runs in this process is used and never stopped: a process can hold one only.
    """

    def __init__(self, config: SparkConfig, *, home: Path, on_progress: Callable[[str], None] | None = None):
        self._config = config
        self._user = user_settings(config)
        self._home = home.absolute()
        self._tell = on_progress or (lambda _: None)
        self._lock = threading.Lock()  # several pipelines ask at once; one starts Spark
        self._root: SparkSession | None = None
        self._engine: Engine | None = None
        self._is_callers = False
        self._opened: weakref.WeakSet[SparkSession] = weakref.WeakSet()  # on a Connect server, by us

    @classmethod
    def of(cls, spark: SparkSession) -> Sessions:
        """Sessions beside the caller's own, classic or Connect, which is neither changed nor stopped."""
        made = cls(SparkConfig(), home=Path())
        made._root = spark
        made._is_callers = True
        return made

    @property
    def started(self) -> bool:
        return self._root is not None

    def isolated(self) -> SparkSession:
        """A fresh session: its settings and temporary views are nobody else's."""
        with self._lock:
            if self._root is None or _is_stopped(self._root):
                self._root = self._start()
            root = self._root
        _require_delta(root)
        session = self._beside(root)
        self._dress(session, root)
        return session

    def archive_classes(self, exercise: Callable[[SparkSession], object]) -> Path:
        """A file of the classes that `exercise` needs, which later starts map. Spark must not run yet."""
        from tallymark.spark import jvm

        if jvm.running_session():
            raise RuntimeUnavailable(
                "Java keeps the classes of a whole life only, but this process already runs a Spark",
                hint="run `tallymark prepare`, which is a process of its own",
            )
        return jvm.archive_classes(self._config, self._home, self._tell, exercise)

    def stop(self) -> None:
        with self._lock:
            while self._opened:
                self._opened.pop().stop()
            if self._engine is not None:
                self._engine.stop()
            if not self._is_callers:
                self._root = self._engine = None

    def _beside(self, root: SparkSession) -> SparkSession:
        if not connect.is_connect_session(root):
            return root.newSession()
        session = connect.beside(root)
        self._open_until_stop(session)
        return session

    def _open_until_stop(self, session: SparkSession) -> None:
        """A Connect session that is still open when Python ends waits for ever for its channel to close."""
        if not self._opened:
            atexit.register(self.stop)
        self._opened.add(session)

    def _start(self) -> SparkSession:
        if self._is_callers:
            raise RuntimeUnavailable(
                "the Spark session that Tallymark was given has been stopped",
                hint="give it one that runs, or none: then it starts its own",
            )
        if is_connect(self._config.master):
            return self._connect()
        from tallymark.spark import jvm

        if running := jvm.running_session():
            return running
        self._engine = jvm.start(self._config, self._home, self._tell)
        return self._engine.session

    def _connect(self) -> SparkSession:
        from tallymark.spark.jvm import running_session

        if running_session():
            raise RuntimeUnavailable(
                "spark.master is a Spark Connect server, but this process already runs a classic Spark, "
                "which a Connect session would break",
                hint="use Spark Connect in a process of its own, or stop the other session first",
            )
        self._tell(f"connecting to {connect.shown(self._config.master)}")
        if ignored := [key for key in self._user if not key.startswith(_RUNTIME_PREFIXES)]:
            self._tell(f"spark.conf: {', '.join(ignored)} belong to the server, and are not used")
        session = connect.connect(self._config.master)
        self._open_until_stop(session)
        return session

    def _dress(self, session: SparkSession, root: SparkSession) -> None:
        has = _settings(session)
        inherited = {key: value for key, value in _settings(root).items() if key not in _NEVER_INHERITED}
        wanted = {**inherited, **self._user, **REQUIRED}
        for key, value in wanted.items():
            if has.get(key) == value or not key.startswith(_RUNTIME_PREFIXES):
                continue
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
        if _shares_files(root):
            session.conf.set(SHARES_FILES, "true")


def _shares_files(root: SparkSession) -> bool:
    if connect.is_connect_session(root):
        return False
    hadoop = cast(Any, root.sparkContext)._jsc.hadoopConfiguration()
    return str(hadoop.get("fs.defaultFS")).startswith("file:")


def _require_delta(session: SparkSession) -> None:
    """A server or a Databricks cluster has Delta in ways of its own; a plain classic session must name it."""
    if connect.is_connect_session(session) or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    if "Delta" not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise RuntimeUnavailable(
            "the Spark session that runs in this process does not know Delta",
            hint=f"start it with spark.jars.packages={DELTA_PACKAGE}, "
            f"spark.sql.extensions={DELTA_EXTENSION} and spark.sql.catalog.spark_catalog={DELTA_CATALOG}",
        )


def _settings(session: SparkSession) -> dict[str, str]:
    """Those that a session can have of its own. Not all values at once: an answer of the JVM above 8 KiB
    comes in two packets, the second 40 ms after the first, and the list of JARs is long."""
    if connect.is_connect_session(session):
        return session.conf.getAll
    java = cast(Any, session.conf)._jconf
    keys = str(cast(Any, session)._jvm.String.join(_BETWEEN, java.getAllAsJava().keySet())).split(_BETWEEN)
    return {key: str(java.get(key)) for key in keys if key.startswith(_RUNTIME_PREFIXES)}


def _is_stopped(session: SparkSession) -> bool:
    if connect.is_connect_session(session):
        return bool(cast(Any, session).is_stopped)
    return session._sc._jsc is None
