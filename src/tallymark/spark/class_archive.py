"""Spark's and Delta's classes as Java keeps them in memory, in a file. A start that maps it need not read,
check and link them from some 250 JARs again."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tallymark.errors import RuntimeUnavailable
from tallymark.spark.java import Java

_OPTIONS = "spark.driver.extraJavaOptions"
_USERS_OWN = re.compile(r"-XX:(?:SharedArchiveFile|ArchiveClassesAtExit)=|-Xshare:")


@dataclass(frozen=True)
class ClassArchive:
    java: Java
    place: Path  # what its name begins with; its size follows, since Java crashes on a file that was cut off

    @classmethod
    def of(cls, java: Java, jars: Iterable[Path], folder: Path) -> ClassArchive:
        """Named after what must be the same when it is used: Java passes over the archive of other JARs."""
        facts = [java.origin, java.version, *map(_identity, sorted(jars))]
        return cls(java, folder / sha256("\n".join(facts).encode()).hexdigest()[:16])

    @property
    def file(self) -> Path | None:
        for file in self.place.parent.glob(f"{self.place.name}-*.jsa"):
            with suppress(FileNotFoundError):  # another process makes it anew
                if file.name == self._name(file.stat().st_size):
                    return file
        return None

    def used_by(self, settings: Mapping[str, str]) -> dict[str, str]:
        file = self.file
        if file is None or _USERS_OWN.search(settings[_OPTIONS]):
            return dict(settings)
        return _asking(settings, "SharedArchiveFile", file)

    def made_by(self, settings: Mapping[str, str]) -> dict[str, str]:
        if _USERS_OWN.search(settings[_OPTIONS]):
            raise RuntimeUnavailable(
                f"spark.conf: {_OPTIONS} already says which class archive Java uses",
                hint=f"remove it from {_OPTIONS} in tallymark.yaml",
            )
        return _asking(settings, "ArchiveClassesAtExit", self._draft)

    def finish(self, log_path: Path) -> Path:
        """After Java has ended, which writes the file as it ends."""
        try:
            self._try_draft()
            self.forget()
            return self._draft.rename(self.place.with_name(self._name(self._draft.stat().st_size)))
        except (OSError, subprocess.SubprocessError) as problem:
            raise RuntimeUnavailable(
                f"Java wrote no class archive that it can use ({problem}); loads work as before",
                hint=f"check the disk space at {self.place.parent}, and see {log_path}",
            ) from problem

    def discard_draft(self) -> None:
        """What a load that failed has left Java to write."""
        self._draft.unlink(missing_ok=True)

    def forget(self) -> None:
        """After a start that failed, since the archive may be why."""
        if file := self.file:
            with suppress(OSError):
                file.unlink()

    def _try_draft(self) -> None:
        self._draft.stat()  # Java would start without it, too
        command = [str(self.java.executable), f"-XX:SharedArchiveFile={self._draft}", "-version"]
        subprocess.run(command, capture_output=True, timeout=60, check=True)  # noqa: S603

    @property
    def _draft(self) -> Path:
        return self.place.with_name(f"{self.place.name}.{os.getpid()}")

    def _name(self, size: int) -> str:
        return f"{self.place.name}-{size}.jsa"


def _asking(settings: Mapping[str, str], option: str, file: Path) -> dict[str, str]:
    return {**settings, _OPTIONS: f'{settings[_OPTIONS]} "-XX:{option}={file}"'}


def _identity(jar: Path) -> str:
    found = jar.stat()
    return f"{jar} {found.st_size} {found.st_mtime_ns}"
