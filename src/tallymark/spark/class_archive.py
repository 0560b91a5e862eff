"""Spark's and Delta's classes as Java keeps them in memory, in a file. A start that maps it need not read,
check and link them from some 250 JARs again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tallymark.errors import RuntimeUnavailable
from tallymark.spark.java import Java

_OPTIONS = "spark.driver.extraJavaOptions"
_USERS_OWN = re.compile(r"-XX:(?:SharedArchiveFile|ArchiveClassesAtExit)=|-Xshare:")


@dataclass(frozen=True)
class ClassArchive:
    file: Path

    @classmethod
    def of(cls, java: Java, jars: Iterable[Path], folder: Path) -> ClassArchive:
        """Named after what must be the same when it is used: Java passes over the archive of other JARs."""
        facts = [str(java.executable.resolve()), java.version, *map(_identity, sorted(jars))]
        return cls(folder / f"{sha256(chr(10).join(facts).encode()).hexdigest()[:16]}.jsa")

    def used_by(self, settings: Mapping[str, str]) -> dict[str, str]:
        return _asking(settings, "SharedArchiveFile", self.file) if self.file.exists() else dict(settings)

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
            self._draft.replace(self.file)
        except OSError as problem:
            raise RuntimeUnavailable(
                f"Java wrote no class archive ({problem}); loads work as before", hint=f"see {log_path}"
            ) from problem
        return self.file

    @property
    def _draft(self) -> Path:
        return self.file.with_suffix(f".{os.getpid()}.jsa")


def _asking(settings: Mapping[str, str], option: str, file: Path) -> dict[str, str]:
    if _USERS_OWN.search(settings[_OPTIONS]):
        return dict(settings)
    return {**settings, _OPTIONS: f'{settings[_OPTIONS]} "-XX:{option}={file}"'}


def _identity(jar: Path) -> str:
    found = jar.stat()
    return f"{jar} {found.st_size} {found.st_mtime_ns}"
