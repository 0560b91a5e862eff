"""One JVM for all processes of a test run: what one of them has warmed up serves the others too.

`make warm` keeps one for the test runs of a day: each that has its folder in `TALLYMARK_WARM_SPARK` joins it.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tallymark.destinations.registry import parse_options, spark_needs
from tallymark.spark import Sessions
from tallymark.spark.launch_settings import SparkConfig, SparkNeeds

WARM = "TALLYMARK_WARM_SPARK"


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


# Of every kind of destination, and of every database that a catalog of Iceberg can be in.
_EVERY_KIND = [
    {"type": "iceberg", "warehouse": "/unused"},
    {"type": "iceberg", "catalog": "jdbc", "uri": "sqlite:////unused", "warehouse": "/unused"},
    {"type": "iceberg", "catalog": "jdbc", "uri": "postgresql://unused/x", "warehouse": "/unused"},
]


def needs_of_tests() -> tuple[SparkNeeds, ...]:
    return spark_needs(map(parse_options, _EVERY_KIND))


def sessions_of_tests(home: Path) -> Sessions:
    config = SparkConfig(
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": str(home / "catalog"),
            "spark.driver.memory": "4g",
            # Tiny data: compiling queries costs more than it saves. (Compiling hot Java code does pay: the
            # suite runs for minutes, mostly in the planning of queries.)
            # A run fills the usual store of compiled code: what was thrown out is compiled again. It also loads
            # more classes than a project does.
            "spark.driver.extraJavaOptions": "-Xms3g -Xmn600m -XX:MetaspaceSize=512m "
            "-XX:ReservedCodeCacheSize=512m -XX:+UseTransparentHugePages",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": _free_port(),
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": False,
            # Spark's own tests of its rules, after each of them.
            "spark.sql.lightweightPlanChangeValidation": False,
        },
    )
    return Sessions(config, needs_of_tests(), home=home / "spark")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def shared_spark(home: Path) -> Iterator[SparkSession]:
    """The first process starts Spark and is the last to leave: the JVM ends with the process that made it."""
    address = home / "spark.json"
    with (home / "start.lock").open("w") as starting, (home / "use.lock").open("w") as using:
        flock(using, LOCK_SH)
        flock(starting, LOCK_EX)
        started = None if address.exists() else sessions_of_tests(home)
        spark = Jvm(**json.loads(address.read_text())).attach() if started is None else started.isolated()
        if started is not None:
            address.write_text(json.dumps(asdict(Jvm.of(spark))))
        flock(starting, LOCK_UN)
        yield spark
        if started is not None:
            flock(starting, LOCK_EX)
            flock(using, LOCK_EX)
            address.unlink()
            started.stop()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with shared_spark(folder):
        print(f"Spark is warm until Ctrl-C. Elsewhere: export {WARM}={folder.resolve()}", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
