"""Starts Spark once, hands out isolated sessions, stops what it started."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tallymark.errors import RuntimeUnavailable
from tallymark.model.session import SHARES_FILES
from tallymark.spark import connect
from tallymark.spark.options import SparkConfig, SparkNeeds
from tallymark.spark.settings import REQUIRED, is_connect, user_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.spark.jvm import RunningJvm

_BETWEEN = "\x1f"  # settings: a character that none of them has
_RUNTIME_PREFIXES = ("spark.sql.", "spark.databricks.")


class Sessions:
    """One Spark for a project. Nothing starts, and no PySpark is imported, before a session is asked for.

    A Spark that already runs in this process is used and never stopped: a process can hold one only.
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
        self._user = user_settings(config)
        self._home = home.absolute()
        self._tell = on_progress or (lambda _: None)
        self._lock = threading.Lock()  # several pipelines ask at once; one starts Spark
        self._root: SparkSession | None = None
        self._jvm: RunningJvm | None = None
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

    def isolated(self) -> SparkSession:
        """A fresh session: its settings and temporary views are nobody else's."""
        with self._lock:
            if self._root is None or _is_stopped(self._root):
                self._root = self._start()
            root = self._root
        _refuse_unmet(self._needs, root)
        session = self._beside(root)
        self._dress(session, root)
        return session

    def archive_classes(self, warm_up: Callable[[SparkSession], object]) -> Path:
        """A file of the classes that `warm_up` uses, which later starts map. Spark must not run yet."""
        from tallymark.spark import jvm

        if jvm.running_session():
            raise RuntimeUnavailable(
                "Java keeps the classes of a whole life only, but this process already runs a Spark",
                hint="run `tallymark prepare`, which is a process of its own",
            )
        return jvm.archive_classes(self._config, self._needs, self._home, self._tell, warm_up)

    def stop(self) -> None:
        with self._lock:
            while self._opened:
                self._opened.pop().stop()
            if self._jvm is not None:
                self._jvm.stop()
            if not self._is_callers:
                self._root = self._jvm = None

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
        self._jvm = jvm.start(self._config, self._needs, self._home, self._tell)
        return self._jvm.session

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
        never = {key for need in self._needs for key in need.never_inherited}
        inherited = {key: value for key, value in _settings(root).items() if key not in never}
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


def _refuse_unmet(needs: Sequence[SparkNeeds], session: SparkSession) -> None:
    """A server or a Databricks cluster loads extensions its own way; a classic session must name them."""
    if connect.is_connect_session(session) or "DATABRICKS_RUNTIME_VERSION" in os.environ:
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
