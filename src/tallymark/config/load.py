"""Loads a project: `tallymark.yaml` and every `pipelines/**/config.yaml`.

1. read each file into values with positions       document.py
2. check each against its model                     explain.py
3. check the files against each other               here
4. report all problems of all files at once, or return the project
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from tallymark.config.combinations import faults
from tallymark.config.document import Document, read_document
from tallymark.config.explain import validate
from tallymark.config.pipeline import PipelineConfig
from tallymark.config.problem import KeyPath, Problem, closest, config_error, listed
from tallymark.config.project import (
    DeltaDestinationConfig,
    DestinationConfig,
    DuckDbDestinationConfig,
    PostgresDestinationConfig,
    ProjectConfig,
    SqliteDestinationConfig,
)
from tallymark.config.secrets import redact
from tallymark.errors import ConfigError
from tallymark.model.settings import MergeSettings

PROJECT_FILE = "tallymark.yaml"
PIPELINES_FOLDER = "pipelines"
PIPELINE_FILE = "config.yaml"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Pipeline:
    name: str  # its folder below pipelines/, dotted: silver.orders
    folder: Path
    config: PipelineConfig
    destination: str
    table: str
    settings: MergeSettings

    def __repr__(self) -> str:
        return redact(f"Pipeline({self.name!r}, destination={self.destination!r}, table={self.table!r})")


@dataclass(frozen=True)
class LoadedProject:
    root: Path
    name: str
    config: ProjectConfig
    pipelines: dict[str, Pipeline]  # sorted by name
    ledger_url: str  # with an absolute path: it must not matter where the command is run
    quarantine_root: str  # an absolute path or a URL

    def resolve(self, path: str) -> str:
        """A relative path becomes absolute below the project; a URL stays as it is."""
        return _resolve(self.root, path)

    def __repr__(self) -> str:
        return redact(f"LoadedProject({self.name!r}, {str(self.root)!r}, pipelines={list(self.pipelines)})")


def find_project(start: Path) -> Path:
    """The folder with tallymark.yaml: this one or the nearest above it."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).exists():
            return folder
        _refuse_other_spelling(folder)
    raise _no_project(f"no {PROJECT_FILE} in {start} or in a folder above it")


def load_project(folder: Path, environment: Mapping[str, str] | None = None) -> LoadedProject:
    """Raises ConfigError with all problems of all files."""
    root = folder.resolve()
    if not (root / PROJECT_FILE).exists():
        _refuse_other_spelling(root)
        raise _no_project(f"no {PROJECT_FILE} in {root}")
    environment = os.environ if environment is None else environment
    document = read_document(root / PROJECT_FILE, PROJECT_FILE, environment)
    config = validate(document, ProjectConfig)
    _check_default_destination(document, config)
    problems = document.problems
    drafts = [_read_pipeline(root, file, config, environment) for file in _pipeline_files(root, problems)]
    for draft in drafts:
        problems += draft.document.problems
    if config is not None:
        problems += _shared_tables(root, config, drafts)
    if config is None or problems:
        raise config_error(problems) from None
    return LoadedProject(
        root=root,
        name=config.name or root.name,
        config=config,
        pipelines=dict(
            sorted((draft.pipeline.name, draft.pipeline) for draft in drafts if draft.pipeline is not None)
        ),
        ledger_url=_ledger_url(root, config.ledger),
        quarantine_root=_quarantine_root(root, config),
    )


def name_fault(parts: Sequence[str]) -> str:
    """Why these cannot be the parts of a pipeline's or table's name; empty when they can."""
    if not parts or not all(_NAME.fullmatch(part) for part in parts):
        return "use letters, digits and _ only"
    if parts[0].casefold().startswith("_tallymark"):
        return "names that begin with _tallymark are Tallymark's own"
    return ""


@dataclass(frozen=True)
class _Draft:
    document: Document
    pipeline: Pipeline | None


def _no_project(message: str) -> ConfigError:
    return ConfigError(message, hint="run `tallymark init` to make a project, or name one with --project")


def _refuse_other_spelling(folder: Path) -> None:
    other = folder / "tallymark.yml"
    if other.exists():
        raise ConfigError(
            f"{other}: the file must be called {PROJECT_FILE}",
            hint=f"rename it: mv {other} {folder / PROJECT_FILE}",
        )


def _check_default_destination(document: Document, config: ProjectConfig | None) -> None:
    if config is None or config.defaults.destination in config.destinations:
        return
    given = ("defaults", "destination")
    asked = document.written.get(given, config.defaults.destination)
    names = sorted(config.destinations)
    message = f"there is no destination {asked}"
    meant = (closest(asked, names) or names[0]) if names else None
    suggestion = f"write defaults: {{destination: {meant}}}" if meant else "destinations is empty"
    at = given if given in document.positions else ("destinations",)
    document.report(given, message, suggestion, at=document.position(at))


def _pipeline_files(root: Path, problems: list[Problem]) -> Iterator[Path]:
    """Every config.yaml below pipelines/, in order of name. A project may have no such folder yet."""
    top = root / PIPELINES_FOLDER
    if not top.exists():
        return
    found = False
    for folder, below, files in os.walk(top):
        below[:] = sorted(name for name in below if not name.startswith((".", "__")))
        for name in sorted(files):
            path = Path(folder, name)
            shown = path.relative_to(root).as_posix()
            if name == PIPELINE_FILE:
                found = True
                yield path
            elif name.casefold() in {"config.yml", PIPELINE_FILE}:
                found = True
                problems.append(Problem(shown, 0, 0, "", "is not read", f"rename it to {PIPELINE_FILE}"))
        if PIPELINE_FILE in below:
            found = True
            below.remove(PIPELINE_FILE)
            yield Path(folder, PIPELINE_FILE)
    if not found:
        message = f"holds no {PIPELINE_FILE}"
        if not top.is_dir():
            message = "is not a folder"
        suggestion = f"a pipeline is a folder in it with a {PIPELINE_FILE}: {PIPELINES_FOLDER}/silver/orders/"
        problems.append(Problem(PIPELINES_FOLDER, 0, 0, "", message, suggestion))


def _read_pipeline(
    root: Path, file: Path, project: ProjectConfig | None, environment: Mapping[str, str]
) -> _Draft:
    document = read_document(file, file.relative_to(root).as_posix(), environment)
    config = validate(document, PipelineConfig)
    parts = file.parent.relative_to(root / PIPELINES_FOLDER).parts
    name = ".".join(parts)
    _check_folder(document, parts)
    # On what the file says, not on the model, which is absent when something else is wrong.
    table, destination = document.data.get("table"), document.data.get("destination")
    if (
        isinstance(table, str)
        and ("table",) not in document.faulty
        and (fault := name_fault(table.split(".")))
    ):
        shown = document.written.get(("table",), table)
        document.report(("table",), f"{shown} cannot be the name of a table", fault)
    if isinstance(destination, str) and project is not None:
        _check_destination(document, destination, project)
    for found in faults(config) if config is not None else ():
        document.report(found.path, found.message, found.hint)
    if document.problems or config is None or project is None:
        return _Draft(document, None)
    return _Draft(
        document,
        Pipeline(
            name=name,
            folder=file.parent,
            config=config,
            destination=config.destination or project.defaults.destination,
            table=config.table or name,
            settings=config.merge_settings(project.defaults.strict),
        ),
    )


def _check_folder(document: Document, parts: tuple[str, ...]) -> None:
    """The folder is the name; the file cannot say it otherwise."""
    if not parts:
        suggestion = f"move it into a folder of its own: {PIPELINES_FOLDER}/silver/orders/{PIPELINE_FILE}"
        document.problems.append(Problem(document.file, 0, 0, "", "has no name", suggestion))
        return
    fault = name_fault(parts)
    if fault:
        usable = "/".join(re.sub(r"[^A-Za-z0-9_]+", "_", part).strip("_") or "pipeline" for part in parts)
        message = f"the folder {'/'.join(parts)} cannot be the name of a pipeline: {fault}"
        suggestion = f"rename it, such as {PIPELINES_FOLDER}/{usable}"
        document.problems.append(Problem(document.file, 0, 0, "", message, suggestion))


def _check_destination(document: Document, asked: str, project: ProjectConfig) -> None:
    path: KeyPath = ("destination",)
    if asked in project.destinations or path in document.faulty:
        return
    names = sorted(project.destinations)
    meant = None if path in document.written else closest(asked, names)
    document.report(
        path,
        f"there is no destination {document.written.get(path, asked)}",
        f"did you mean {meant}?" if meant else f"{PROJECT_FILE} has {listed(names, 'and') or 'none'}",
    )


def _shared_tables(root: Path, project: ProjectConfig, drafts: list[_Draft]) -> list[Problem]:
    """Two pipelines that write one table would undo each other, also through two names of one place."""
    first: dict[tuple[str, str], _Draft] = {}
    problems = []
    for draft in drafts:
        pipeline = draft.pipeline
        destination = project.destinations.get(pipeline.destination) if pipeline else None
        if pipeline is None or destination is None:
            continue
        place = (_location(root, destination), pipeline.table.casefold())
        other = first.setdefault(place, draft)
        if other is draft or other.pipeline is None:
            continue
        at = draft.document.position(("table",))
        message = (
            f"{pipeline.name} and {other.pipeline.name} ({other.document.file}) both write table "
            f"{pipeline.table} of {pipeline.destination}"
        )
        suggestion = "give one of them another table"
        problems.append(Problem(draft.document.file, at.line, at.column, "table", message, suggestion))
    return problems


def _location(root: Path, destination: DestinationConfig) -> str:
    match destination:
        case DeltaDestinationConfig(path=str() as path):
            return _resolve(root, path).rstrip("/")
        case DeltaDestinationConfig():
            return f"catalog {destination.catalog}"
        case PostgresDestinationConfig():
            return destination.url
        case SqliteDestinationConfig(path=path) | DuckDbDestinationConfig(path=path):
            return _resolve(root, path)
        case _:
            assert_never(destination)


def _ledger_url(root: Path, url: str) -> str:
    if not url.startswith(_SQLITE):
        return url
    path, mark, options = url.removeprefix(_SQLITE).partition("?")
    return f"{_SQLITE}{_resolve(root, path)}{mark}{options}"


def _quarantine_root(root: Path, project: ProjectConfig) -> str:
    if project.quarantine_path is not None:
        return _resolve(root, project.quarantine_path)
    for destination in project.destinations.values():
        if isinstance(destination, DeltaDestinationConfig) and destination.path is not None:
            return f"{_resolve(root, destination.path).rstrip('/')}/_tallymark/quarantine"
    return _resolve(root, ".tallymark/quarantine")


def _resolve(root: Path, path: str) -> str:
    return path if _URL.match(path) else os.path.normpath(root / path)
