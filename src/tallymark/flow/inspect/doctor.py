"""What `doctor` looks at: each part is tried for real, and a fault in one hides no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyspark

from tallymark.config.load_project import LoadedProject
from tallymark.destinations import registry
from tallymark.destinations.contract import Destination
from tallymark.errors import TallymarkError
from tallymark.ledger import open_ledger
from tallymark.model.report import Finding
from tallymark.spark import Sessions, find_java
from tallymark.spark.launch_settings import is_connect


def examine(project: LoadedProject, sessions: Sessions) -> Iterator[Finding]:
    yield Finding("Python", True, sys.version.split()[0])
    master = project.config.spark.master
    if is_connect(master):
        yield Finding("Java", True, "not needed: Spark Connect")
    else:
        yield _tried("Java", lambda: _java(project.root))
    spark = _tried("Spark", lambda: _spark(sessions, master))
    yield spark
    yield _tried("Ledger", lambda: _ledger(project))
    for name, config in project.config.destinations.items():
        if not spark.ok:
            yield Finding(f"Destination {name}", False, "not tried", "Spark must start first")
            continue
        destination = registry.open_destination(config, sessions.isolated, project.resolve)
        yield _tried(f"Destination {name}", partial(_destination, destination))


def _tried(subject: str, work: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, True, work())
    except TallymarkError as error:
        return Finding(subject, False, error.message, error.hint)
    except Exception as error:
        return Finding(subject, False, f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _java(root: Path) -> str:
    java = find_java(root / ".tallymark")
    return f"{java.version} ({java.origin})"


def _spark(sessions: Sessions, master: str) -> str:
    session = sessions.isolated()
    session.sql("SELECT 1").collect()
    return f"{session.version} at {master.partition(';')[0]}, PySpark {pyspark.__version__}"


def _destination(destination: Destination) -> str:
    destination.check()
    return f"{destination.capabilities.name}, can be written"


def _ledger(project: LoadedProject) -> str:
    with open_ledger(project.ledger_url) as ledger:
        ledger.check()
        return f"{ledger.place}, can be written"
