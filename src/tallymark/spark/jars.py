"""Which JARs Spark needs beyond its own, and where they are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zipfile import is_zipfile

AVRO_PACKAGE = "org.apache.spark:spark-avro_2.13:4.1.1"  # for files, whatever the destination

_IVY = ".ivy2.5.2"  # Spark's own name for it


@dataclass(frozen=True)
class MavenPackage:
    coordinate: str  # group:artifact_scala:version
    shown_as: str = ""  # to the user who waits for the download: name and size

    @property
    def artifact(self) -> str:
        """Without the versions in its name, so that any version that the user brings is found by it."""
        return self.coordinate.split(":")[1].partition("_")[0]


def packages(
    needed: Iterable[MavenPackage], asked: Iterable[str], user: Mapping[str, str], shipped: frozenset[str]
) -> list[str]:
    """Maven coordinates to resolve: the user's, and those needed of which the user or Spark has no JAR."""
    wanted = [*asked, *filter(None, user.get("spark.jars.packages", "").split(","))]
    brought = ",".join([*wanted, user.get("spark.jars", ""), *shipped])
    own = [*needed, MavenPackage(AVRO_PACKAGE)]
    return [package.coordinate for package in own if package.artifact not in brought] + wanted


def excludes(shipped: frozenset[str]) -> str:
    """What Spark ships is not fetched again: of 90 MB for Delta, 75 are Spark's own, copied at each start."""
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


def download_notice(coordinates: Iterable[str], needed: Iterable[MavenPackage], ivy: Path) -> str:
    """What is about to be downloaded, for the user who waits; empty if everything is there."""
    missing = [each for each in coordinates if not _is_kept(each, ivy)]
    if not missing:
        return ""
    shown = {package.coordinate: package.shown_as for package in needed}
    return f"downloading {', '.join(shown.get(each) or each for each in missing)}, once"


@dataclass(frozen=True)
class Resolved:
    """Which files some coordinates came to, remembered beside them: to ask Ivy again and to copy what it
    finds takes seconds of each start. Only for a Spark whose workers live in this process."""

    ivy: Path
    record: Path

    @classmethod
    def of(cls, settings: Mapping[str, str], ivy: Path) -> Resolved:
        asked = "\n".join(settings.get(key, "") for key in ("spark.jars.packages", "spark.jars.excludes"))
        return cls(ivy, ivy / "tallymark" / f"{sha256(asked.encode()).hexdigest()[:16]}.txt")

    def files(self) -> list[Path]:
        """Empty: not known, or no longer all there and whole. Spark would start without them, and whatever
        needs them would fail in a way that names no JAR."""
        try:
            files = [Path(line) for line in self.record.read_text("utf-8").splitlines()]
        except (OSError, ValueError):
            return []
        return files if all(self._is_ours(file) and is_zipfile(file) for file in files) else []

    def remember(self, settings: Mapping[str, str], loaded: str) -> None:
        """`loaded` is Spark's own list after its start, in which the user's own JARs are too. Versions that
        move are resolved each time."""
        files = (Path(unquote(urlsplit(url).path)) for url in loaded.split(","))
        paths = [file for file in files if self._is_ours(file)]
        if not paths or re.search(r"(?i)snapshot|latest|[\[(+]", settings["spark.jars.packages"]):
            return
        unfinished = self.record.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # a folder that only others may write: then it takes its seconds
            self.record.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text("\n".join(map(str, paths)) + "\n", "utf-8")
            unfinished.replace(self.record)

    def forget(self) -> None:
        with suppress(OSError):
            self.record.unlink()

    def _is_ours(self, file: Path) -> bool:
        return file.parent == self.ivy / "jars"


def on_class_path(settings: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """Settings that find these files without asking anybody."""
    theirs = settings.get("spark.driver.extraClassPath", "")
    path = os.pathsep.join([*map(str, files), *filter(None, [theirs])])
    return {**settings, "spark.driver.extraClassPath": path, "spark.jars.packages": ""}


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
