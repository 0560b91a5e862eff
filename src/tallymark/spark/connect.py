"""Sessions on a Spark Connect server. Needs no Java and no JARs on this machine."""

from __future__ import annotations

import copy
import os
import socket
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from tallymark.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULT_PORT = 15002
_PROBE_SECONDS = 10
_UNFINALIZED = "UnfinalizedSession"


def is_connect_session(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def connect(url: str) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        _probe(url)
        session: SparkSession = SparkSession.builder.remote(url).create()
        _never_closed_by_the_collector(session)
        session.version  # noqa: B018  (nothing is sent before the first call)
    except Exception as problem:
        raise RuntimeUnavailable(
            f"the Spark Connect server {shown(url)} cannot be used: {str(problem).splitlines()[0]}",
            hint="check spark.master in tallymark.yaml and that the server is up",
        ) from problem
    return session


def beside(session: SparkSession) -> SparkSession:
    """A new session on the same server. Connect has no newSession: it goes in by the same way."""
    way_in = copy.copy(cast(Any, session).client._builder)
    # An address that names a session would lead back into that very session.
    way_in._params = {key: value for key, value in way_in._params.items() if key != way_in.PARAM_SESSION_ID}
    made = cast("SparkSession", cast(Any, type(session))(connection=way_in))
    _never_closed_by_the_collector(made)
    return made


def _never_closed_by_the_collector(session: SparkSession) -> None:
    """Python may collect a session that nobody uses at any moment, also while PySpark hands work to the pool
    that all sessions share. Its finalizer then waits for the lock of that pool, which its own thread holds:
    for ever. So ours have none; `stop` closes them, or the end of the process."""
    given = type(session)
    if given.__name__ != _UNFINALIZED:
        body = {"__del__": lambda self: None, "__module__": given.__module__}
        session.__class__ = type(_UNFINALIZED, (given,), body)


def shown(url: str) -> str:
    """The address without what may follow it: a token."""
    return url.split(";", maxsplit=1)[0].rstrip("/")


def _probe(url: str) -> None:
    """Spark's client tries for ten minutes before it says that nobody listens. This says it at once."""
    if any(name.lower() in ("http_proxy", "https_proxy", "grpc_proxy") for name in os.environ):
        return  # then the way to the server is not a plain one
    address = urlsplit("http" + url.removeprefix("sc"))
    socket.create_connection((address.hostname or "", address.port or _DEFAULT_PORT), _PROBE_SECONDS).close()
