"""Which JARs Spark needs beyond its own, where they are kept, and whether they are what they should be.

Those that Tallymark itself names, and what they need, have a pinned SHA-256 in `jar_pins.json`, which
`docs/write_components.py --pins` writes. A JAR that differs is not loaded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zipfile import is_zipfile

from tallymark.errors import RuntimeUnavailable

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
        paths = [file for file in local_files(loaded) if self._is_ours(file)]
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

    def check(self, files: Iterable[Path]) -> list[str]:
        """Compares them with their pins; gives the names of those in Ivy's folder that have none. A file is
        hashed again only when it is another one than at the last check."""
        record = self.record.parent / "checked.json"
        before, after, unpinned = _checked_before(record), {}, []
        for file in files:
            wanted = pins().get(file.name)
            if wanted is None or not file.exists():
                unpinned += [file.name] if self._is_ours(file) else []
                continue
            identity, found = _identity(file), None
            if file.name in before and before[file.name][0] == identity:
                found = before[file.name][1]
            if found != wanted:
                found = _sha256(file)
            if found != wanted:
                raise _changed(file, wanted, found)
            after[file.name] = (identity, found)
        if any(before.get(name) != entry for name, entry in after.items()):
            unfinished = record.with_suffix(f".{os.getpid()}")
            with suppress(OSError):  # then the next start hashes them again
                record.parent.mkdir(parents=True, exist_ok=True)
                unfinished.write_text(json.dumps({**before, **after}), "utf-8")
                unfinished.replace(record)
        return unpinned

    def _is_ours(self, file: Path) -> bool:
        return file.parent == self.ivy / "jars"


@cache
def pins() -> Mapping[str, str]:
    """SHA-256 by the file's name in Ivy's folder."""
    listed = json.loads(Path(__file__).with_name("jar_pins.json").read_text("utf-8"))
    return {name: jar["sha256"] for name, jar in listed.items()}


def local_files(urls: str) -> list[Path]:
    """Of `spark.jars`, Spark's own list after it has resolved its packages."""
    return [Path(unquote(urlsplit(url).path)) for url in urls.split(",") if url]


def _identity(file: Path) -> str:
    """Whoever writes to a file changes the time of its inode, which cannot be set back."""
    status = file.stat()
    return f"{file} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()


def _checked_before(record: Path) -> dict[str, tuple[str, str]]:
    try:
        listed = json.loads(record.read_text("utf-8"))
        return {name: (str(entry[0]), str(entry[1])) for name, entry in listed.items()}
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return {}


def _changed(file: Path, wanted: str, found: str) -> RuntimeUnavailable:
    return RuntimeUnavailable(
        f"{file} is not the JAR that Tallymark was tested with: its SHA-256 is {found}, not {wanted}; "
        "nothing of it was loaded",
        hint=f"delete {file} and {file.parent.parent / 'cache'}, then run again to download it; if the "
        "sum is wrong again, the repository gives out another file",
        facts={"jar": str(file), "expected": wanted, "found": found},
    )


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
