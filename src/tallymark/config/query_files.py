"""Files that hold a query: `pipeline.sql`, `pipeline.py`, and quality tests in `tests/quality/**/*.sql`.

Settings stand in the head comment: `-- @key: value` in SQL, `# @key: value` in Python.

1. split the file into comments and code
2. the comments before the first code are the head: each `@key: value` there is a setting, on one line
3. a setting below the head is an error, since it would otherwise be ignored; other `@words` are left alone
4. each value is YAML, as in config.yaml; the result is a Document with its own positions
"""

from __future__ import annotations

import io
import os
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

from pydantic import BaseModel, Field

from tallymark.config.explain import validate
from tallymark.config.keys import fields_by_key
from tallymark.config.pipeline_file import PipelineConfig
from tallymark.config.yaml_file import (
    Document,
    KeyPath,
    Position,
    Problem,
    closest,
    listed,
    read_text,
    read_value,
)
from tallymark.model.gate import Severity
from tallymark.model.section import Section

MAX_TRANSFORM_BYTES = 1024 * 1024

# Jinja's own idea of a line end, so that lines are counted alike everywhere.
_LINE_END = re.compile(r"\r\n|\r|\n")


class Language(StrEnum):
    SQL = "sql"
    PYTHON = "python"


TRANSFORM_FILES = {"pipeline.sql": Language.SQL, "pipeline.py": Language.PYTHON}


@dataclass(frozen=True)
class Transform:
    language: Language
    path: Path
    text: str  # with \n at the end of every line, whatever the file has
    file: str  # how problems call it: relative to the project

    def __repr__(self) -> str:
        return f"Transform({self.file!r})"


def with_plain_line_ends(text: str) -> str:
    return _LINE_END.sub("\n", text)


MAX_ANNOTATIONS = 1000
DEEPEST_KEY = 5

# Every part ends at the end of the text, too, and is not tried again in another way (`*+`): a file of
# open quotes takes no longer than any other.
_SQL_PARTS = re.compile(
    r"""(?P<line>--[^\n]*)
      | (?P<block>/\*.*?(?:\*/|\Z))
      | (?P<jinja>\{\#.*?(?:\#\}|\Z))
      | (?P<space>\s+)
      | '(?:[^'\\]|\\.?)*+'? | "(?:[^"\\]|\\.?)*+"? | `[^`]*+`?
      | [^\s'"`/{-]+ | .""",
    re.DOTALL | re.VERBOSE,
)
_ANNOTATION = re.compile(r"(?P<lead>[\s*]*)@(?P<key>[^\s:@]+)(?P<gap>[ \t]*)(?P<colon>:?)(?P<value>.*)")
_KEY = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*")


@dataclass(frozen=True)
class _Comment:
    text: str  # one line, without the marks around it
    line: int
    column: int  # of the text's first character
    in_head: bool


@dataclass(frozen=True)
class _Annotation:
    path: KeyPath
    value: str
    key_at: Position
    value_at: Position
    has_colon: bool
    in_head: bool

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))


def read_annotations(
    transform: Transform, environment: Mapping[str, str], model: type[BaseModel] = PipelineConfig
) -> Document:
    """What the head comment says, as a document like config.yaml."""
    document = Document(transform.file, readable=True)
    keys = fields_by_key(model)
    number = 0
    for annotation in _annotations(transform):
        known = annotation.path[0] in keys
        if not annotation.in_head:
            if known and annotation.has_colon:
                hint = "move it into the comment at the top of the file, or write it without @"
                message = "a setting below the first line of code has no effect"
                document.report(annotation.path, message, hint, at=annotation.key_at)
            continue
        if not annotation.has_colon:
            if known:
                hint = f"write @{annotation.name}: {annotation.value or '…'}"
                document.report(annotation.path, "has no `:`", hint, at=annotation.key_at)
            continue
        number += 1
        if number > MAX_ANNOTATIONS:
            message = f"more than {MAX_ANNOTATIONS} settings in the head comment"
            document.report((), message, "put them into config.yaml", at=annotation.key_at)
            break
        _put(document, annotation, environment)
    return document


def _put(document: Document, annotation: _Annotation, environment: Mapping[str, str]) -> None:
    path = annotation.path
    if not _KEY.fullmatch(annotation.name) or len(path) > DEEPEST_KEY:
        document.report(path, "is not the name of a setting", at=annotation.key_at)
        return
    place: dict[str, Any] = document.data
    for depth, part in enumerate(path[:-1], start=1):
        inner = place.setdefault(str(part), {})
        document.positions.setdefault(path[:depth], annotation.key_at)
        if not isinstance(inner, dict):
            _given_twice(document, annotation, path[:depth])
            return
        place = inner
    if path[-1] in place:
        _given_twice(document, annotation, path)
        return
    document.positions[path] = annotation.key_at
    if not annotation.value:
        document.report(path, "has no value", "give it one, or remove the line")
        return
    place[str(path[-1])] = read_value(annotation.value, path, document, environment, annotation.value_at)


def _given_twice(document: Document, annotation: _Annotation, first: KeyPath) -> None:
    line = document.positions[first].line
    document.report(annotation.path, f"given twice; first on line {line}", "keep one", at=annotation.key_at)


def _annotations(transform: Transform) -> Iterator[_Annotation]:
    for comment in _comments(transform):
        found = _ANNOTATION.match(comment.text)
        if found is None:
            continue
        value = found["value"]
        start = found.start("value") + len(value) - len(value.lstrip())
        yield _Annotation(
            path=tuple(found["key"].split(".")),
            value=value.strip(),
            key_at=Position(comment.line, comment.column + found.start("key")),
            value_at=Position(comment.line, comment.column + start),
            has_colon=bool(found["colon"]),
            in_head=comment.in_head,
        )


def _comments(transform: Transform) -> Iterator[_Comment]:
    match transform.language:
        case Language.SQL:
            return _sql_comments(transform.text)
        case Language.PYTHON:
            return _python_comments(transform.text)
        case _:
            assert_never(transform.language)


def _sql_comments(text: str) -> Iterator[_Comment]:
    line, line_start, in_head = 1, 0, True
    for found in _SQL_PARTS.finditer(text):
        part, at = found[0], found.start() - line_start + 1
        match found.lastgroup:
            case "line":
                yield _Comment(part.lstrip("-"), line, at + len(part) - len(part.lstrip("-")), in_head)
            case "block" | "jinja":
                for below, content in enumerate(_inside(part).split("\n")):
                    yield _Comment(content, line + below, at if below == 0 else 1, in_head)
            case "space":
                pass
            case _:
                in_head = False
        if "\n" in part:
            line += part.count("\n")
            line_start = found.start() + part.rfind("\n") + 1


def _inside(block: str) -> str:
    """Spaces instead of the marks, `{#-` and `-#}` among them, so that columns stay what they are."""
    block = re.sub(r"^(/\*|\{\#[-+]?)", lambda mark: " " * len(mark[0]), block)
    return re.sub(r"([-+]?\#\}|\*/)$", "", block)


def _python_comments(text: str) -> Iterator[_Comment]:
    """A file that Python cannot take apart gives what came before the mistake; its reader reports that."""
    in_head, docstring = True, True
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match token.type:
                case tokenize.COMMENT:
                    line, column = token.start
                    content = token.string.lstrip("#")
                    yield _Comment(content, line, column + 1 + len(token.string) - len(content), in_head)
                case tokenize.NL | tokenize.NEWLINE:
                    pass
                case tokenize.STRING if docstring:
                    docstring = False
                case _:
                    in_head = False
    except (tokenize.TokenError, SyntaxError):
        return


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
