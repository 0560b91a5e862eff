"""`tests/quality/**/*.sql`: queries that return the rows of a pipeline's table that are wrong."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tallymark.config.annotations import read_annotations
from tallymark.config.document import Document, read_text
from tallymark.config.explain import validate
from tallymark.config.problem import Problem, closest, listed
from tallymark.config.transform import MAX_TRANSFORM_BYTES, Language, Transform, with_plain_line_ends
from tallymark.model.gate import Severity
from tallymark.model.section import Section

QUALITY_FOLDER = "tests/quality"


class QualityTestHead(Section):
    """The annotations of a quality test."""

    pipeline: str = Field(min_length=1, description="The pipeline whose table the query looks at")
    severity: Severity = Field(Severity.ERROR, description="warn lets the load go on")
    description: str = Field("", description="For people: what is wrong with the rows")


@dataclass(frozen=True)
class QualityTest:
    file: str  # relative to the project
    text: str  # a template, with its head comment
    pipeline: str
    severity: Severity = Severity.ERROR
    description: str = ""

    def __repr__(self) -> str:
        return f"QualityTest({self.file!r})"


def read_quality_tests(
    root: Path, pipelines: Collection[str], environment: Mapping[str, str], problems: list[Problem]
) -> tuple[QualityTest, ...]:
    """In order of name. What is wrong is added to `problems`."""
    found = (_read(root, path, pipelines, environment, problems) for path in _files(root / QUALITY_FOLDER))
    return tuple(test for test in found if test is not None)


def _files(top: Path) -> Iterator[Path]:
    for walked, below, files in os.walk(top):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".sql") and not name.startswith("."):
                yield Path(walked) / name


def _read(
    root: Path,
    path: Path,
    pipelines: Collection[str],
    environment: Mapping[str, str],
    problems: list[Problem],
) -> QualityTest | None:
    document = Document(path.relative_to(root).as_posix())
    text = read_text(path, document, MAX_TRANSFORM_BYTES, "is this a query?")
    head: QualityTestHead | None = None
    if text is not None:
        text = with_plain_line_ends(text)
        transform = Transform(Language.SQL, path, text, document.file)
        document = read_annotations(transform, environment, QualityTestHead)
        head = validate(document, QualityTestHead)
        _check_pipeline(document, pipelines)
    problems += document.problems
    if text is None or head is None or document.problems:
        return None
    return QualityTest(document.file, text, head.pipeline, head.severity, head.description)


def _check_pipeline(document: Document, pipelines: Collection[str]) -> None:
    asked = document.data.get("pipeline")
    if not isinstance(asked, str) or asked in pipelines or ("pipeline",) in document.faulty:
        return
    meant = closest(asked, pipelines)
    known = listed(sorted(pipelines), "and") or "none yet"
    hint = f"did you mean {meant}?" if meant else f"the project has {known}"
    document.report(("pipeline",), f"there is no pipeline {asked}", hint)
