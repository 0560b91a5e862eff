"""Every key of a configuration model: its path, the kind of value it takes, its default and meaning.

Errors, suggestions and the reference page all read this, so they cannot disagree.
"""

from __future__ import annotations

import datetime
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tallymark.config.problem import KeyPath, listed

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
