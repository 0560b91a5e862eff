"""Which JARs Spark needs beyond its own, and where they are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

DELTA_PACKAGE = "io.delta:delta-spark_4.1_2.13:4.4.0"
AVRO_PACKAGE = "org.apache.spark:spark-avro_2.13:4.1.1"

_OWN = {"delta-spark": DELTA_PACKAGE, "spark-avro": AVRO_PACKAGE}
_IVY = ".ivy2.5.2"  # Spark's own name for it


def packages(asked: Iterable[str], user: Mapping[str, str], shipped: frozenset[str]) -> list[str]:
    """Maven coordinates to resolve: the user's, and ours where the user or Spark has no such JAR."""
    wanted = [*asked, *filter(None, user.get("spark.jars.packages", "").split(","))]
    brought = ",".join([*wanted, user.get("spark.jars", ""), *shipped])
    return [package for artifact, package in _OWN.items() if artifact not in brought] + wanted


def excludes(shipped: frozenset[str]) -> str:
    """What Spark ships is not fetched again: of Delta's 90 MB, 75 are Spark's own, copied at each start."""
    artifacts = {re.sub(r"-\d[^/]*\.jar$", "", name) for name in shipped}
    return ",".join(f"*:{artifact}" for artifact in sorted(artifacts))


def ivy_folder(user: Mapping[str, str], home: Path) -> Path:
    """Where Spark keeps what it downloads: as told, in the home folder, or else in the project."""
    if "spark.jars.ivy" in user:
        return Path(user["spark.jars.ivy"])
    kept = (each / _IVY for each in _home_folders())
    return next((folder for folder in kept if _writable(folder)), home / "ivy")


def default_ivy_folder() -> Path | None:
    return next((each / _IVY for each in _home_folders()), None)


def download_notice(coordinates: Iterable[str], ivy: Path) -> str:
    """What is about to be downloaded, for the user who waits; empty if everything is there."""
    missing = [each for each in coordinates if not _is_kept(each, ivy)]
    if not missing:
        return ""
    names = ["Delta 4.4.0 (about 13 MB)" if each == DELTA_PACKAGE else each for each in missing]
    return f"downloading {', '.join(names)}, once"


def _is_kept(coordinate: str, ivy: Path) -> bool:
    group, _, artifact_and_version = coordinate.partition(":")
    return (ivy / "jars" / f"{group}_{artifact_and_version.replace(':', '-')}.jar").exists()


def _home_folders() -> list[Path]:
    """Java asks the user database, not HOME; a container's random user is not in it."""
    homes = []
    try:
        import pwd

        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    except (ImportError, KeyError):
        pass
    if os.environ.get("HOME"):
        homes.append(Path(os.environ["HOME"]))
    return homes


def _writable(folder: Path) -> bool:
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    # Never make a home folder: a service user's /nonexistent is meant not to be there.
    return existing in (folder, folder.parent) and os.access(existing, os.W_OK | os.X_OK)
