"""Loads a project: `tallymark.yaml`, every pipeline folder and every quality test.

1. read each file into values with positions       yaml_file.py, query_files.py
2. check each file against its model                explain.py, pipeline_folders.py
3. check the files against each other               here
4. return the project, or report all problems of all files at once
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

from tallymark.config.explain import validate
from tallymark.config.keys import fields_by_key
from tallymark.config.pipeline_folders import PROJECT_FILE, Draft, Pipeline, pipeline_folders, read_pipeline
from tallymark.config.project_file import ProjectConfig, installed_model
from tallymark.config.query_files import TRANSFORM_FILES, QualityTest, read_quality_tests
from tallymark.config.yaml_file import (
    Document,
    KeyPath,
    Position,
    Problem,
    closest,
    config_error,
    key_text,
    read_document,
)
from tallymark.destinations import registry
from tallymark.errors import ConfigError
from tallymark.model.report import EffectiveSetting, SettingOrigin
from tallymark.model.section import redact
from tallymark.spark.launch_settings import SparkNeeds, is_local

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
_SQLITE = "sqlite:///"
_AMONG_TABLES = "/_tallymark/quarantine"
_HAS_FOLDER = re.compile(r"^/|^[^:]+:/(?:/[^/]*/)?[^/]+")  # not only a bucket


@dataclass(frozen=True)
class LoadedProject:
    root: Path
    name: str
    config: ProjectConfig
    pipelines: dict[str, Pipeline]  # sorted by name
    ledger_url: str  # with an absolute path: it must not matter where the command is run
    quarantine_roots: tuple[str, ...]  # absolute paths or URLs: where bad rows are kept, then where they were
    origins: Mapping[KeyPath, Position] = field(default_factory=dict)  # of what tallymark.yaml says
    quality_tests: tuple[QualityTest, ...] = ()  # of all pipelines

    def resolve(self, path: str) -> str:
        """A relative path becomes absolute below the project; a URL stays as it is."""
        return _resolve(self.root, path)

    @property
    def spark_needs(self) -> tuple[SparkNeeds, ...]:
        """What its destinations and its quarantine need of Spark."""
        return registry.spark_needs(self.config.destinations.values())

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
    config = validate(document, _model_for(document))
    _check_default_destination(document, config)
    problems = document.problems
    drafts = [read_pipeline(root, found, config, environment) for found in pipeline_folders(root, problems)]
    for draft in drafts:
        problems += draft.document.problems
    quality_tests = read_quality_tests(root, [draft.name for draft in drafts], environment, problems)
    if config is not None:
        problems += _shared_tables(root, config, drafts) or _nested_tables(root, config, drafts)
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
        quarantine_roots=_quarantine_roots(root, config),
        origins=document.positions,
        quality_tests=quality_tests,
    )


def _no_project(message: str) -> ConfigError:
    return ConfigError(message, hint="run `tallymark init` to make a project, or name one with --project")


def _refuse_other_spelling(folder: Path) -> None:
    other = folder / "tallymark.yml"
    if other.exists():
        raise ConfigError(
            f"{other}: the file must be called {PROJECT_FILE}",
            hint=f"rename it: mv {other} {folder / PROJECT_FILE}",
        )


def _model_for(document: Document) -> type[ProjectConfig]:
    """Other distributions are searched for kinds of destinations only if the file asks for one that is not
    built in. A kind that cannot be loaded is reported where the file asks for it."""
    given = document.data.get("destinations")
    foreign: dict[str, KeyPath] = {}
    for name, destination in given.items() if isinstance(given, dict) else ():
        kind = destination.get("type") if isinstance(destination, dict) else None
        if isinstance(kind, str) and kind not in registry.BUILT_IN:
            foreign[kind] = ("destinations", name, "type")
    if not foreign:
        return ProjectConfig
    known = registry.kind_names()
    for kind, path in foreign.items():
        try:
            if kind in known:
                registry.find_kind(kind)
        except ConfigError as error:
            document.report(path, error.message, error.hint)
    return installed_model()


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


def _shared_tables(root: Path, project: ProjectConfig, drafts: list[Draft]) -> list[Problem]:
    """Two pipelines that write one table would undo each other, also through two names of one place."""
    first: dict[tuple[str, str], Draft] = {}
    problems = []
    for draft in drafts:
        pipeline = draft.pipeline
        destination = project.destinations.get(pipeline.destination) if pipeline else None
        if pipeline is None or destination is None:
            continue
        kind = registry.kind_of(destination)
        location = kind.location(destination, partial(_resolve, root))
        place = (location, pipeline.table.casefold())
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


def _nested_tables(root: Path, project: ProjectConfig, drafts: list[Draft]) -> list[Problem]:
    """A table inside the folder of another one: VACUUM of the outer one deletes the inner one's files."""
    places: dict[tuple[str, ...], Draft] = {}
    problems = []
    for draft in drafts:
        place = _folder_parts(root, project, draft.pipeline)
        if place is not None and places.setdefault(place, draft) is not draft:
            problems.append(_collision(draft, places[place], "the same folder as"))
    for place, draft in places.items():
        for depth in range(1, len(place)):
            if outer := places.get(place[:depth]):
                problems.append(_collision(draft, outer, "a folder inside that of"))
    return problems


def _collision(draft: Draft, other: Draft, how: str) -> Problem:
    assert draft.pipeline is not None and other.pipeline is not None  # noqa: S101
    at = draft.document.position(("table",))
    message = (
        f"{draft.pipeline.name} writes {how} {other.pipeline.name} ({other.document.file}): a VACUUM of "
        f"table {other.pipeline.table} would delete files of table {draft.pipeline.table}"
    )
    suggestion = f"give one of them another table, such as {draft.pipeline.table.replace('.', '_')}"
    return Problem(draft.document.file, at.line, at.column, "table", message, suggestion)


_S3 = {"s3a": "s3", "s3n": "s3"}


def _folder_parts(root: Path, project: ProjectConfig, pipeline: Pipeline | None) -> tuple[str, ...] | None:
    """The same for all spellings of one folder: links, letter case (some disks ignore it), names of S3."""
    options = None if pipeline is None else project.destinations.get(pipeline.destination)
    if pipeline is None or options is None:
        return None
    kind = registry.kind_of(options)
    found = kind.folder(options, partial(_resolve, root), pipeline.table) if kind.folder else None
    if found is None:
        return None
    address = urlsplit(found)
    if address.scheme in ("", "file"):
        path = os.path.realpath(unquote(address.path) if address.scheme else found)
        return ("file", "", *Path(path.casefold()).parts)
    parts = [part for part in address.path.casefold().split("/") if part]
    return (_S3.get(address.scheme, address.scheme), address.netloc, *parts)


def _ledger_url(root: Path, url: str) -> str:
    if not url.startswith(_SQLITE):
        return url
    path, mark, options = url.removeprefix(_SQLITE).partition("?")
    return f"{_SQLITE}{_resolve(root, path)}{mark}{options}"


def _quarantine_roots(root: Path, project: ProjectConfig) -> tuple[str, ...]:
    """By default in the project's own folder, not among the tables: who may read a table must not see its bad
    rows. Executors of a cluster may not reach that folder, so there it is beside the tables. Earlier versions
    kept bad rows inside the tables' root, where they are still read."""
    if project.quarantine_path is not None:
        return (_resolve(root, project.quarantine_path),)
    own = _resolve(root, ".tallymark/quarantine")
    earlier = registry.quarantine_root(project.destinations.values(), partial(_resolve, root))
    if earlier is None:
        return (own,)
    tables = earlier.removesuffix(_AMONG_TABLES)
    is_here = is_local(project.spark.master) and not _URL.match(tables)
    beside = f"{tables}_quarantine" if _HAS_FOLDER.search(tables) else earlier
    return tuple(dict.fromkeys((own if is_here else beside, earlier)))


def _resolve(root: Path, path: str) -> str:
    return path if _URL.match(path) else os.path.normpath(root / path)


def effective_settings(project: LoadedProject, pipeline: Pipeline) -> tuple[EffectiveSetting, ...]:
    """Every setting of the pipeline in the order of the reference. Sections that are absent have none."""
    return tuple(_Reader(project, pipeline).settings(pipeline.config, ()))


# Which key of tallymark.yaml stands in for a key that the pipeline does not give.
_OF_THE_PROJECT: dict[KeyPath, KeyPath] = {
    ("destination",): ("defaults", "destination"),
    ("strict",): ("defaults", "strict"),
}


@dataclass(frozen=True)
class _Reader:
    project: LoadedProject
    pipeline: Pipeline

    def settings(self, section: BaseModel, path: KeyPath) -> Iterator[EffectiveSetting]:
        names = {field.alias or name: name for name, field in type(section).model_fields.items()}
        for key in fields_by_key(type(section)):
            value = getattr(section, names[key])
            yield from self._setting((*path, key), value)

    def _setting(self, path: KeyPath, value: object) -> Iterator[EffectiveSetting]:
        if path == ("vars",):
            value = self.pipeline.variables
        if value is None and path in {("source",), ("cdc",)}:
            return
        if path == ("batch",) and self.pipeline.transform is not None:
            return
        if isinstance(value, BaseModel):
            yield from self.settings(value, path)
        elif isinstance(value, Mapping):
            for name, item in value.items():
                yield from self._setting((*path, str(name)), item)
        else:
            yield self._leaf(path, value)

    def _leaf(self, path: KeyPath, value: object) -> EffectiveSetting:
        place = self.pipeline.origins.get(path)
        if place is not None:
            origin = (
                SettingOrigin.ANNOTATION
                if Path(place.file).name in TRANSFORM_FILES
                else SettingOrigin.PIPELINE
            )
            return EffectiveSetting(key_text(path), plain(value), origin, place.file, place.line)
        in_project = path if path[0] == "vars" else _OF_THE_PROJECT.get(path)
        given = self.project.origins.get(in_project) if in_project else None
        held = plain(self._default(path, value))
        if given is None:
            return EffectiveSetting(key_text(path), held, SettingOrigin.DEFAULT)
        return EffectiveSetting(key_text(path), held, SettingOrigin.PROJECT, PROJECT_FILE, given.line)

    def _default(self, path: KeyPath, value: object) -> object:
        match path:
            case ("destination",):
                return self.pipeline.destination
            case ("table",):
                return self.pipeline.table
            case ("strict",):
                return self.pipeline.settings.strict
            case _:
                return value


def plain(value: object) -> object:
    """As YAML would have it, without secrets."""
    match value:
        case BaseModel():
            return plain(value.model_dump(by_alias=True, exclude_unset=True))
        case Enum():
            return value.value
        case str():
            return redact(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value
