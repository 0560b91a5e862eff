"""What Spark is started with: Tallymark's own settings, what destinations need, and the user's.

The user's settings, the `spark` section of tallymark.yaml, win, except where they would change the rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from tallymark.errors import ConfigError
from tallymark.model.section import Section
from tallymark.spark import jars
from tallymark.spark.jars import MavenPackage
from tallymark.spark.session_settings import REQUIRED, Pinned, is_kept_at_default


class SparkConfig(Section):
    master: str = Field(
        "local[*]",
        description="local[N], spark://host:port, yarn, k8s://…, or sc://host:port for Spark Connect",
    )
    conf: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Any Spark setting; it wins over Tallymark's own"
    )
    packages: list[str] = Field(
        default_factory=list, description="Further Maven coordinates, such as a cloud storage connector"
    )


@dataclass(frozen=True)
class SparkNeeds:
    """What a Spark session must have before a destination can use it."""

    title: str
    packages: tuple[MavenPackage, ...] = ()
    extensions: tuple[str, ...] = ()  # classes for spark.sql.extensions
    settings: Mapping[str, str] = field(default_factory=dict)  # catalogs, for example
    # Further settings for a Spark that runs inside this process.
    embedded_settings: Mapping[str, str] = field(default_factory=dict)
    # Settings of the caller's session, or of its Spark, that ours must not have.
    never_inherited: frozenset[str] = frozenset()
    # Settings on which its rows depend, beside those of `session_settings`.
    required: Mapping[str, Pinned] = field(default_factory=dict)


# These hold lists: the user's entries join ours instead of replacing them.
_LISTS = {"spark.sql.extensions": ",", "spark.driver.extraJavaOptions": " "}

_GIBIBYTE = 1 << 30

# G1 marks all the time beside Parquet's large buffers: a fifth of the processor time of small loads.
_COLLECTOR = "-XX:+UseParallelGC"
# Java begins with 21 MiB for classes, and each time before it takes more it clears the whole heap.
_ROOM_FOR_CLASSES = "-XX:MetaspaceSize=256m"
# Elsewhere Delta verifies its checksum after each commit by reading the whole log again.
_TIME_ZONE = "-Duser.timezone=UTC"
_OTHER_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def as_text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_local(master: str) -> bool:
    return master.startswith("local")


def is_connect(master: str) -> bool:
    return master.startswith("sc://")


def required_settings(needs: Iterable[SparkNeeds]) -> dict[str, Pinned]:
    return {**REQUIRED, **{key: pin for need in needs for key, pin in need.required.items()}}


def user_settings(config: SparkConfig, needs: Iterable[SparkNeeds] = ()) -> dict[str, str]:
    """The `conf` of tallymark.yaml as text. Refuses what would change the meaning of a load."""
    settings = {key: as_text(value) for key, value in config.conf.items()}
    pinned = required_settings(needs)
    for key, value in settings.items():
        if is_kept_at_default(key):
            message = f"spark.conf: {key} would change what values mean, so Tallymark keeps Spark's default"
        elif key in pinned and not pinned[key].accepts(value):
            message = f"spark.conf: {key} is {value}, but Tallymark needs {pinned[key].value}: otherwise "
            message += pinned[key].why
        else:
            continue
        raise ConfigError(
            message, hint=f"remove {key} from spark.conf in tallymark.yaml", facts={"setting": key}
        )
    return settings


def launch_settings(
    config: SparkConfig, needs: Sequence[SparkNeeds], home: Path, shipped: frozenset[str]
) -> dict[str, str]:
    """What a Spark that we start is started with. `shipped` names the JARs that Spark comes with."""
    user = user_settings(config, needs)
    own = _everywhere(config.master, home) | _downloads(user, home, shipped)
    own["spark.sql.extensions"] = ",".join(dict.fromkeys(name for need in needs for name in need.extensions))
    for need in needs:
        own |= need.settings
    if is_local(config.master):
        own |= _embedded(config.master)
        for need in needs:
            own |= need.embedded_settings
        own["spark.driver.extraJavaOptions"] += f" {_TIME_ZONE} {_ROOM_FOR_CLASSES}"
        if not _OTHER_COLLECTOR.search(user.get("spark.driver.extraJavaOptions", "")):
            own["spark.driver.extraJavaOptions"] += f" {_COLLECTOR}"
    joined = {key: mark.join(filter(None, [own[key], user.get(key)])) for key, mark in _LISTS.items()}
    needed = list(dict.fromkeys(package for need in needs for package in need.packages))
    wanted = {"spark.jars.packages": ",".join(jars.packages(needed, config.packages, user, shipped))}
    return {**own, **user, **joined, **wanted}


def _everywhere(master: str, home: Path) -> dict[str, str]:
    scratch = home / "spark"
    return {
        "spark.master": master,
        "spark.app.name": "tallymark",
        "spark.ui.showConsoleProgress": "false",
        # Spark's own misses some names, and shows such settings in its pages and event logs.
        "spark.redaction.regex": r"(?i)secret|passw|passphrase|token|credential|\bsas\b"
        r"|(access|account|private|shared|encryption)[._-]?key",
        # Without these, Spark leaves spark-warehouse, metastore_db and derby.log in the current folder.
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f'"-Dderby.system.home={scratch}"',
        # The JVM never compiles a larger method: a table of a dozen typed columns would run interpreted.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # One load runs about 180 generated classes: with Spark's 100 each load would compile them all again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        **{key: pin.value for key, pin in REQUIRED.items()},
    }


def _downloads(user: Mapping[str, str], home: Path, shipped: frozenset[str]) -> dict[str, str]:
    settings = {"spark.jars.excludes": jars.excludes(shipped)}
    ivy = jars.ivy_folder(user, home)
    # Left alone where it is Spark's default, which spark-defaults.conf may have moved.
    return settings if ivy == jars.default_ivy_folder() else settings | {"spark.jars.ivy": str(ivy)}


def _embedded(master: str) -> dict[str, str]:
    return {
        "spark.driver.memory": f"{driver_memory_gib()}g",
        # A laptop's host name often does not resolve, or resolves to an address that a VPN took away.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(2, cores(master))),
        # Spark's own choice is 64 MiB of zeros for each sort, join or aggregation of each task, even of three
        # rows. They end up in the old part of the heap, which fills and is cleared again and again.
        "spark.buffer.pageSize": "1m",
        # Landing zones hold many tiny files: at Spark's 4 MiB each they would become a task each.
        "spark.sql.files.openCostInBytes": str(128 << 10),
    }


def cores(master: str) -> int:
    asked = re.match(r"local\[(\d+)", master)
    if asked:
        return int(asked[1])
    if master == "local":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def driver_memory_gib() -> int:
    """A quarter of the machine, between 2 and 4 GiB; 1 GiB where even half of it is less than 2."""
    machine = machine_memory()
    return 1 if machine < 4 * _GIBIBYTE else max(2, min(4, machine // 4 // _GIBIBYTE))


def machine_memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's share
    try:
        return min(total, int(limit.read_text()))
    except (OSError, ValueError):
        return total
