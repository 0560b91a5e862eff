"""One JVM for all processes of a test run: what one of them has warmed up serves the others too."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Jvm:
    port: int
    secret: str

    @classmethod
    def of(cls, spark: SparkSession) -> Jvm:
        parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
        return cls(parameters.port, parameters.auth_token)

    def attach(self) -> SparkSession:
        """A session of this process on the Spark that runs already."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("PYSPARK_GATEWAY_PORT", str(self.port))
            patched.setenv("PYSPARK_GATEWAY_SECRET", self.secret)
            patched.setenv("PYSPARK_PYTHON", sys.executable)
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
            running = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
            conf = SparkConf(_jvm=gateway.jvm, _jconf=running.getConf())
            return SparkSession(SparkContext(gateway=gateway, jsc=running, conf=conf))


class Door:
    """An entrance of its own into the JVM of this process. What a client leaves behind there, dead or alive,
    goes when its door is shut; behind the main entrance it would stay for ever."""

    def __init__(self, spark: SparkSession):
        java = spark.sparkContext._jvm
        secret = Jvm.of(spark).secret
        self._server = java.py4j.ClientServer.ClientServerBuilder().authToken(secret).javaPort(0).build()  # type: ignore[union-attr]
        self._server.startServer()
        self.jvm = Jvm(self._server.getJavaServer().getListeningPort(), secret)

    def shut(self) -> None:
        self._server.shutdown()


@contextmanager
def shared_spark(folder: Path, start: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """The first process starts Spark and is the last to leave: the JVM ends with the process that made it."""
    address = folder / "spark.json"
    with (folder / "start.lock").open("w") as starting, (folder / "use.lock").open("w") as using:
        flock(using, LOCK_SH)
        flock(starting, LOCK_EX)
        is_first = not address.exists()
        spark = start() if is_first else Jvm(**json.loads(address.read_text())).attach()
        if is_first:
            address.write_text(json.dumps(asdict(Jvm.of(spark))))
        flock(starting, LOCK_UN)
        yield spark
        if is_first:
            flock(starting, LOCK_EX)
            flock(using, LOCK_EX)
            address.unlink()
