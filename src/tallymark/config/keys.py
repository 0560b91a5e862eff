"""Every key of a configuration model: its path, the kind of value it takes, its default and meaning.

Error messages, JSON Schemas for editors and the tables of the reference page all come from here, so they
cannot disagree.
"""

from __future__ import annotations

import datetime
import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tallymark.config.pipeline_file import PipelineConfig
from tallymark.config.project_file import ProjectConfig, installed_model
from tallymark.config.yaml_file import KeyPath, key_text, listed

ANY_NAME = "<name>"  # a key that the user chooses
ANY_ITEM = 0  # an item of a list

_PLAIN = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    datetime.date: "a date",
    datetime.datetime: "a time",
}
_ITEMS = {str: "text", list: "lists", BaseModel: "mappings"}


@dataclass(frozen=True)
class Key:
    path: KeyPath  # with ANY_NAME and ANY_ITEM
    kind: str
    default: object  # PydanticUndefined when the key is required
    description: str

    @property
    def required(self) -> bool:
        return self.default is PydanticUndefined


@cache
def keys_of(model: type[BaseModel]) -> tuple[Key, ...]:
    """Depth first, in the order of the model."""
    return tuple(_walk(model, ()))


def _walk(model: type[BaseModel], path: KeyPath) -> Iterator[Key]:
    for name, field in fields_by_key(model).items():
        at = (*path, name)
        default = field.get_default(call_default_factory=True, validated_data={})
        yield Key(at, kind_words(field_type(field)), default, field.description or "")
        for below, inner in _models_below(field.annotation, at):
            yield from _walk(inner, below)


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The model's fields under the names that the file uses."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def field_type(field: FieldInfo) -> Any:
    """The annotation with its metadata, some of which says what else is accepted."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def type_at(model: type[BaseModel], path: KeyPath) -> Any:
    """The annotation of the value at `path`, or None when the models have no such place."""
    kind: Any = model
    for part in path:
        kind = _step(kind, part)
        if kind is None:
            return None
    return kind


def _step(kind: Any, part: str | int) -> Any:
    for option in alternatives(kind):
        if isinstance(option, type) and issubclass(option, BaseModel):
            field = fields_by_key(option).get(str(part))
            if field is not None:
                return field_type(field)
        elif get_origin(option) is dict and isinstance(part, str):
            return get_args(option)[1]
        elif get_origin(option) is list and isinstance(part, int):
            return get_args(option)[0]
    return None


def alternatives(kind: Any) -> list[Any]:
    """The members of a union, without None; `text or a list` where a text is split into one."""
    if get_origin(kind) is Annotated:
        inner, *metadata = get_args(kind)
        accepted = (getattr(item, "json_schema_input_type", None) for item in metadata)
        wider = next((item for item in accepted if isinstance(item, types.UnionType)), None)
        return alternatives(wider or inner)
    if get_origin(kind) in {Union, types.UnionType}:
        return [option for part in get_args(kind) for option in alternatives(part)]
    return [] if kind is type(None) else [kind]


def choices(kind: Any) -> list[str]:
    """The allowed words, where only some are allowed."""
    words: list[str] = []
    for option in alternatives(kind):
        if get_origin(option) is Literal:
            words += [str(word) for word in get_args(option)]
        elif isinstance(option, type) and issubclass(option, Enum):
            words += [str(member.value) for member in option]
    return words


def kind_words(kind: Any) -> str:
    """What is expected, in plain words."""
    words = choices(kind)
    if words:
        return f"one of {listed(words)}" if len(words) > 1 else words[0]
    kinds = list(dict.fromkeys(_one_kind(option) for option in alternatives(kind)))
    if "a number" in kinds and "a whole number" in kinds:
        kinds.remove("a whole number")
    return listed(kinds)


def _one_kind(option: Any) -> str:
    if option in _PLAIN:
        return _PLAIN[option]
    if get_origin(option) is list:
        (item,) = get_args(option)
        return f"a list of {_ITEMS.get(_plain_kind(item), 'values')}"
    return "a mapping"


def _plain_kind(item: Any) -> Any:
    """Without metadata and parameters; of a union, the union."""
    if get_origin(item) is Annotated:
        return _plain_kind(get_args(item)[0])
    if isinstance(item, type) and issubclass(item, BaseModel):
        return BaseModel
    return get_origin(item) or item


def _models_below(annotation: Any, path: KeyPath) -> Iterator[tuple[KeyPath, type[BaseModel]]]:
    for option in alternatives(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            yield path, option
        elif get_origin(option) is dict:
            yield from _models_below(get_args(option)[1], (*path, ANY_NAME))
        elif get_origin(option) is list:
            yield from _models_below(get_args(option)[0], (*path, ANY_ITEM))


PROJECT_SCHEMA = "tallymark.schema.json"
PIPELINE_SCHEMA = "pipeline.schema.json"

_FILES: dict[str, tuple[type[BaseModel], str, str]] = {
    PROJECT_SCHEMA: (
        ProjectConfig,
        "tallymark.yaml",
        "A Tallymark project: ledger, Spark settings, named destinations. Every key has a default.",
    ),
    PIPELINE_SCHEMA: (
        PipelineConfig,
        "config.yaml",
        "A Tallymark pipeline: one table, where its rows come from and how they are merged.",
    ),
}


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schema (draft 2020-12) of both files, by file name, with every kind of destination that is
    installed."""
    return {
        name: _schema(name, installed_model() if model is ProjectConfig else model, title, description)
        for name, (model, title, description) in _FILES.items()
    }


def schema_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _schema(name: str, model: type[BaseModel], title: str, description: str) -> dict[str, Any]:
    body = model.model_json_schema(by_alias=True, mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:tallymark:{name}",
        **body,
        "title": title,
        "description": description,
    }


def write_reference(folder: Path) -> list[Path]:
    """Writes both schemas, and the tables between the marks in configuration.md, into docs/reference."""
    written = []
    for name, schema in schemas().items():
        (folder / name).write_text(schema_text(schema), encoding="utf-8")
        written.append(folder / name)
    page = folder / "configuration.md"
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return [*written, page]


def with_tables(page: str) -> str:
    """The page with fresh tables between its marks; what people wrote around them stays."""
    for model, title, _ in _FILES.values():
        begin, end = f"<!-- begin keys of {title} -->", f"<!-- end keys of {title} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{reference_table(model)}{end}{after}"
    return page


def reference_table(model: type[BaseModel]) -> str:
    """A Markdown table of every key: path, type, default, meaning."""
    rows: dict[str, Key] = {}
    for key in keys_of(model):
        path = key_text(key.path).replace(f"[{ANY_ITEM}]", "[]")
        known = rows.get(path)
        rows[path] = key if known is None else _both(known, key)
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{path}` | {key.kind} | {_default(key)} | {_cell(key)} |" for path, key in rows.items()]
    return "\n".join(lines) + "\n"


def _both(known: Key, key: Key) -> Key:
    """One key of several kinds of destination: `type` has one word in each, `path` a meaning in each."""
    kinds = dict.fromkeys([*known.kind.split(" or "), key.kind])
    told = bool(key.description) and key.description not in known.description
    meaning = "; ".join([known.description, key.description]) if told else known.description
    return Key(key.path, " or ".join(kinds), known.default, meaning)


def _default(key: Key) -> str:
    match key.default:
        case _ if key.required:
            return "required"
        case None | "" | [] | {} | BaseModel():
            return ""
        case dict():
            return ""  # the meaning says it
        case Enum():
            return f"`{key.default.value}`"
        case bool() | list():
            return f"`{json.dumps(key.default)}`"
        case _:
            return f"`{key.default}`"


def _cell(key: Key) -> str:
    return (key.description or "Which kind of destination").replace("|", "\\|").replace("<", "&lt;")
