"""The pipelines of a project: folders below pipelines/ with a config.yaml, pipeline.sql or pipeline.py.

1. find the folders
2. read config.yaml, and the annotations of a transform over it
3. check the whole against the model, then where the rows come from, names and keys that do not fit
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tallymark.config.combinations import faults
from tallymark.config.explain import WHERE_ROWS_COME_FROM, validate
from tallymark.config.pipeline_file import Materialized, PipelineConfig
from tallymark.config.project_file import ProjectConfig
from tallymark.config.query_files import (
    MAX_TRANSFORM_BYTES,
    TRANSFORM_FILES,
    Transform,
    read_annotations,
    with_plain_line_ends,
)
from tallymark.config.yaml_file import (
    Document,
    KeyPath,
    Position,
    Problem,
    closest,
    listed,
    overlay,
    read_document,
    read_text,
)
from tallymark.destinations.registry import kind_of
from tallymark.model.section import Scalar, redact
from tallymark.model.settings import MergeSettings, SchemaEvolution

PROJECT_FILE = "tallymark.yaml"
PIPELINES_FOLDER = "pipelines"
PIPELINE_FILE = "config.yaml"

_FILES = (PIPELINE_FILE, *TRANSFORM_FILES)
_OTHER_SPELLINGS = {"config.yml": PIPELINE_FILE} | {name: name for name in _FILES}
_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class Pipeline:
    name: str  # its folder below pipelines/, dotted: silver.orders
    folder: Path
    config: PipelineConfig
    destination: str
    table: str
    settings: MergeSettings
    transform: Transform | None = None  # None: the rows come from the files of config.source
    variables: Mapping[str, Scalar] = field(default_factory=dict)  # the project's and its own
    origins: Mapping[KeyPath, Position] = field(default_factory=dict)  # of what its files say

    @property
    def is_view(self) -> bool:
        return self.config.materialized is Materialized.VIEW

    def __repr__(self) -> str:
        return redact(f"Pipeline({self.name!r}, destination={self.destination!r}, table={self.table!r})")


@dataclass(frozen=True)
class Draft:
    name: str
    document: Document
    pipeline: Pipeline | None  # None when something is wrong, and then the document knows what


def name_fault(parts: Sequence[str]) -> str:
    """Why these cannot be the parts of a pipeline's or table's name; empty when they can."""
    if not parts or not all(_NAME.fullmatch(part) for part in parts):
        return "use letters, digits and _ only"
    if parts[0].casefold().startswith("_tallymark"):
        return "names that begin with _tallymark are Tallymark's own"
    return ""


def pipeline_folders(root: Path, problems: list[Problem]) -> Iterator[Path]:
    """Every folder with a pipeline, in order of name. A project may have no pipelines/ yet."""
    top = root / PIPELINES_FOLDER
    if not top.exists():
        return
    found = False
    for walked, below, files in os.walk(top):
        below[:] = sorted(name for name in below if not name.startswith((".", "__")))
        here = Path(walked)
        misnamed = list(_misnamed(here.relative_to(root), sorted(files)))
        # A folder of such a name is yielded too: reading it says what is wrong with it.
        is_pipeline = any(name in files or name in below for name in _FILES)
        below[:] = [name for name in below if name not in _FILES]
        found = found or is_pipeline or bool(misnamed)
        problems += misnamed
        if is_pipeline:
            yield here
    if not found:
        message = "holds no pipeline" if top.is_dir() else "is not a folder"
        suggestion = (
            f"a pipeline is a folder in it with a {PIPELINE_FILE} or a pipeline.sql: "
            f"{PIPELINES_FOLDER}/silver/orders/"
        )
        problems.append(Problem(PIPELINES_FOLDER, 0, 0, "", message, suggestion))


def _misnamed(folder: Path, files: Sequence[str]) -> Iterator[Problem]:
    """Files that look like those of a pipeline, and would be passed over in silence."""
    for name in files:
        right = _OTHER_SPELLINGS.get(name.casefold())
        if right is None and name.endswith(".sql") and not any(known in files for known in _FILES):
            right = "pipeline.sql"
        if right not in (None, name):
            yield Problem((folder / name).as_posix(), 0, 0, "", "is not read", f"rename it to {right}")


def read_pipeline(
    root: Path, folder: Path, project: ProjectConfig | None, environment: Mapping[str, str]
) -> Draft:
    document, transform = _read_files(root, folder, environment)
    config = validate(document, PipelineConfig)
    parts = folder.relative_to(root / PIPELINES_FOLDER).parts
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
    for found in faults(config, transform) if config is not None else ():
        document.report(found.path, found.message, found.hint)
    if config is not None and project is not None and not document.problems:
        _check_support(document, config, project)
    if document.problems or config is None or project is None:
        return Draft(name, document, None)
    return Draft(
        name,
        document,
        Pipeline(
            name=name,
            folder=folder,
            config=config,
            destination=config.destination or project.defaults.destination,
            table=config.table or name,
            settings=config.merge_settings(project.defaults.strict),
            transform=transform,
            variables={**project.vars, **config.vars},
            origins=document.positions,
        ),
    )


def _read_files(
    root: Path, folder: Path, environment: Mapping[str, str]
) -> tuple[Document, Transform | None]:
    # A dangling link is there, too: reading it says what is wrong with it.
    present = [name for name in TRANSFORM_FILES if os.path.lexists(folder / name)]
    shown = {name: (folder / name).relative_to(root).as_posix() for name in _FILES}
    transform: Transform | None = None
    annotations = Document(shown[present[0]] if present else shown[PIPELINE_FILE], readable=True)
    if present:
        path = folder / present[0]
        text = read_text(path, annotations, MAX_TRANSFORM_BYTES, "is this a query?")
        if text is not None:
            text = with_plain_line_ends(text)
            transform = Transform(TRANSFORM_FILES[present[0]], path, text, annotations.file)
            annotations = read_annotations(transform, environment)
    if not os.path.lexists(folder / PIPELINE_FILE):
        document = overlay(Document(annotations.file, readable=True), annotations)
    else:
        document = read_document(folder / PIPELINE_FILE, shown[PIPELINE_FILE], environment)
        document = overlay(document, annotations)
    _check_where_rows_come_from(document, [shown[name] for name in present])
    return document, transform


def _check_where_rows_come_from(document: Document, transforms: Sequence[str]) -> None:
    """Exactly one of source, pipeline.sql and pipeline.py."""
    source: KeyPath = ("source",)
    match transforms:
        case []:
            if document.readable and document.data.get("source") is None:
                document.report(source, "missing", WHERE_ROWS_COME_FROM)
        case [_, second, *_]:
            message = "pipeline.sql is there too, and a pipeline has one of them"
            document.problems.append(Problem(second, 0, 0, "", message, "keep one"))
        case [only]:
            if document.data.get("source") is not None:
                name = Path(only).name
                message = f"the rows come from {name}, so a source has no use"
                document.report(source, message, f"remove source, or {name}")


def _check_folder(document: Document, parts: tuple[str, ...]) -> None:
    """The folder is the name; the file cannot say it otherwise."""
    if not parts:
        file = Path(document.file).name
        suggestion = f"move it into a folder of its own: {PIPELINES_FOLDER}/silver/orders/{file}"
        document.problems.append(Problem(document.file, 0, 0, "", "has no name", suggestion))
        return
    fault = name_fault(parts)
    if fault:
        usable = "/".join(re.sub(r"[^A-Za-z0-9_]+", "_", part).strip("_") or "pipeline" for part in parts)
        message = f"the folder {'/'.join(parts)} cannot be the name of a pipeline: {fault}"
        suggestion = f"rename it, such as {PIPELINES_FOLDER}/{usable}"
        document.problems.append(Problem(document.file, 0, 0, "", message, suggestion))


def _check_support(document: Document, config: PipelineConfig, project: ProjectConfig) -> None:
    """What the destination declares that it does not do is refused before anything runs."""
    name = config.destination or project.defaults.destination
    options = project.destinations.get(name)
    if options is None:
        return  # reported already
    evolves = config.schema_evolution is SchemaEvolution.ADD
    gaps = (
        kind_of(options)
        .capabilities_of(options)
        .gaps(
            config.merge_settings(),
            is_view=config.materialized is Materialized.VIEW,
            adds_columns=evolves and "schema_evolution" in config.model_fields_set,
        )
    )
    for key, gap in gaps:
        document.report((key,), f"{name}: {gap.reason}", gap.hint)


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
