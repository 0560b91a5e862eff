"""Turns pydantic's errors about a file into plain messages with line and suggestion.

The value of a variable is never shown: messages quote the text as it is written.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tallymark.config.keys import ANY_ITEM, ANY_NAME, alternatives, choices, keys_of, kind_words, type_at
from tallymark.config.pipeline_file import PipelineConfig
from tallymark.config.project_file import ProjectConfig
from tallymark.config.yaml_file import Document, KeyPath, closest, did_you_mean, key_text, listed

AnyConfig = TypeVar("AnyConfig", bound=BaseModel)

LONGEST_SHOWN = 60

# People write these for options of Spark's readers; the model cannot know them, since any is allowed.
READER_OPTIONS = frozenset(
    """
    header delimiter sep quote escape comment multiline inferschema nullvalue nanvalue emptyvalue dateformat
    timestampformat timestampntzformat mode columnnameofcorruptrecord ignoreleadingwhitespace linesep
    ignoretrailingwhitespace mergeschema primitivesasstring allowcomments locale rowtag maxcolumns
    """.split()  # noqa: SIM905
)
OTHER_WORDS = {
    "key": "unique_key",
    "keys": "unique_key",
    "primary_key": "unique_key",
    "strategy": "merge_strategy",
    "write_disposition": "merge_strategy",
    "target": "table",
    "cursor": "watermark_column",
}
WHERE_ROWS_COME_FROM = (
    "say where the rows come from, such as source: {files: landing/orders/*.csv}, "
    "or put a pipeline.sql or pipeline.py beside it"
)
OTHER_STRATEGIES = {"merge": "upsert", "overwrite": "full_refresh", "replace": "full_refresh", "scd": "scd2"}
_LIMITS = {
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be a finite number",
}


def validate(document: Document, model: type[AnyConfig]) -> AnyConfig | None:
    """The document as `model`, or None; the document then holds the problems."""
    if not document.readable:
        return None
    try:
        config = model.model_validate(document.data, by_alias=True, by_name=False)
    except ValidationError as error:
        by_path: dict[KeyPath, list[ErrorDetails]] = {}
        for detail in error.errors(include_url=False):
            by_path.setdefault(_path_in(document.data, detail), []).append(detail)
        for path, details in by_path.items():
            if path not in document.faulty and not _said_better_below(path, details, by_path):
                _report(document, model, path, details)
        return None
    return None if document.problems else config


def _path_in(data: Any, detail: ErrorDetails) -> KeyPath:
    """pydantic puts names of union members and `[key]` between the keys; the file has no such keys."""
    path: KeyPath = ()
    for part in detail["loc"]:
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            path = (*path, part)
    return (*path, detail["loc"][-1]) if detail["type"] == "missing" else path


def _said_better_below(path: KeyPath, details: list[ErrorDetails], paths: Iterable[KeyPath]) -> bool:
    """For `files: [1]`, pydantic reports the list and the item; the item says it better."""
    only_kinds = all(detail["type"].endswith("_type") for detail in details)
    return only_kinds and any(len(other) > len(path) and other[: len(path)] == path for other in paths)


def _report(document: Document, model: type[BaseModel], path: KeyPath, details: list[ErrorDetails]) -> None:
    detail = details[0]
    value = _value_at(document.data, path)
    kind = type_at(model, path)
    match detail["type"]:
        case "missing":
            document.report(path, "missing", _what_is_missing(model, path))
        case "extra_forbidden":
            document.report(path, "unknown key", _where_it_belongs(model, path))
        case "value_error":
            document.report(path, str(detail["ctx"]["error"]))
        case "string_too_short":
            document.report(path, "is empty")
        case "union_tag_invalid" if (*path, "type") in document.faulty:
            pass  # a kind of destination that cannot be loaded
        case "union_tag_invalid":
            tags = detail["ctx"]["expected_tags"].replace("'", "").split(", ")
            _report_choice(document, (*path, "type"), value.get("type"), tags)
        case "literal_error" if "[key]" in detail["loc"]:
            words = choices(_kind_of_keys(model, path))
            document.report(
                path, f"unknown key; expected {listed(words)}", did_you_mean(str(path[-1]), words)
            )
        case limit if limit in _LIMITS:
            rule = _LIMITS[limit].format(**detail.get("ctx", {}))
            document.report(path, f"{rule}, found {_shown(document, path, value)}")
        case _ if words := choices(kind):
            _report_choice(document, path, value, words)
        case _:
            document.report(
                path,
                f"expected {kind_words(kind)}, found {_found(document, path, value)}",
                _how_to_say_it(kind, value),
            )


def _report_choice(document: Document, path: KeyPath, value: object, words: list[str]) -> None:
    if not isinstance(value, str):
        document.report(path, f"expected one of {listed(words)}, found {_found(document, path, value)}")
        return
    other = OTHER_STRATEGIES.get(value.casefold()) if path == ("merge_strategy",) else None
    meant = other or (None if path in document.written else closest(value, words))
    document.report(
        path,
        f"{_shown(document, path, value)} is not one of {listed(words)}",
        f"did you mean {meant}?" if meant else "",
    )


def _kind_of_keys(model: type[BaseModel], path: KeyPath) -> Any:
    """What a mapping with a fixed set of keys, such as cdc.operations, allows as keys."""
    (mapping,) = alternatives(type_at(model, path[:-1]))
    return mapping.__args__[0]


def _value_at(data: Any, path: KeyPath) -> Any:
    """None for a key that is missing."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else data[part]
    return data


def _shown(document: Document, path: KeyPath, value: object) -> str:
    """The value as the user wrote it, shortened."""
    text = str(document.written.get(path, value))
    if isinstance(value, bool) and path not in document.written:
        text = text.lower()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _found(document: Document, path: KeyPath, value: object) -> str:
    """The kind of value that the file has, in plain words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return _shown(document, path, value)
        case int():
            return f"the whole number {_shown(document, path, value)}"
        case float():
            return f"the number {_shown(document, path, value)}"
        case str():
            return f'the text "{_shown(document, path, value)}"'
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case datetime.date():
            return f"the date {_shown(document, path, value)}"
        case _:
            return "something else"


def _how_to_say_it(kind: Any, value: object) -> str:
    """How to write it so that it is what was expected."""
    if value is None:
        return "give it a value, or remove the line"
    if str in alternatives(kind) and isinstance(value, int | float | datetime.date):
        return "put quotes around it"
    if isinstance(value, dict) and "a list" in kind_words(kind):
        return "begin each item with `- `"
    return ""


def _what_is_missing(model: type[BaseModel], path: KeyPath) -> str:
    if path == ("source", "files"):
        return "say where the rows come from, such as source: {files: landing/orders/*.csv}"
    key = next((key for key in keys_of(model) if _same_place(key.path, _general(path))), None)
    return f"it is required: {key.description[:1].lower()}{key.description[1:]}" if key else ""


def _same_place(general: KeyPath, actual: KeyPath) -> bool:
    return len(general) == len(actual) and all(
        one in (ANY_NAME, other) for one, other in zip(general, actual, strict=True)
    )


def _where_it_belongs(model: type[BaseModel], path: KeyPath) -> str:
    """The right spelling, the right level, or the right file."""
    word = str(path[-1])
    if path[:1] == ("columns",) and word.endswith(")"):
        return 'inside { } write the type in quotes: "decimal(12,2)"'
    if model is PipelineConfig and path == ("name",):
        return "a pipeline's name is its folder"
    here = [str(key.path[-1]) for key in keys_of(model) if _same_place(key.path[:-1], _general(path[:-1]))]
    if OTHER_WORDS.get(word) in here:
        return f"did you mean {OTHER_WORDS[word]}?"
    elsewhere = _paths_by_name(model)
    if word in elsewhere:
        return f"it belongs {_under(elsewhere[word])}"
    if model is PipelineConfig and word.casefold() in READER_OPTIONS:
        return "it belongs under source.options"
    other_model, file = (
        (ProjectConfig, "tallymark.yaml")
        if model is PipelineConfig
        else (PipelineConfig, "a pipeline's config.yaml")
    )
    if word in _paths_by_name(other_model):
        return f"it belongs in {file}"
    if meant := closest(word, here):
        return f"did you mean {meant}?"
    if meant := closest(word, elsewhere):
        return f"did you mean {key_text(elsewhere[meant])}?"
    return f"expected {listed(here)}" if len(here) <= 8 else ""


def _general(path: KeyPath) -> KeyPath:
    return tuple(ANY_ITEM if isinstance(part, int) else part for part in path)


@cache
def _paths_by_name(model: type[BaseModel]) -> dict[str, KeyPath]:
    """Where a key of this name is, the shallowest first; keys of list items and of named things not."""
    paths: dict[str, KeyPath] = {}
    for key in sorted(keys_of(model), key=lambda key: len(key.path)):
        if ANY_ITEM not in key.path and ANY_NAME not in key.path:
            paths.setdefault(str(key.path[-1]), key.path)
    return paths


def _under(path: KeyPath) -> str:
    return f"under {key_text(path[:-1])}" if len(path) > 1 else "at the top level"
