"""What every part of a configuration file has in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from tallymark.model.secrets import redact


class Section(BaseModel):
    """Unknown keys are errors, values do not change, and no text made of it shows a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """`max_files: true` would otherwise be read as 1."""
        if isinstance(value, bool) and not _names_bool(cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("not_a_bool", "true and false have no meaning here")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, _Shown(redact(repr(value)))


class _Shown(str):
    """A text whose repr is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _names_bool(annotation: object) -> bool:
    return annotation is bool or any(_names_bool(part) for part in get_args(annotation))


def as_list(value: object) -> object:
    """`unique_key: id` and `unique_key: a, b` mean the same as lists."""
    if not isinstance(value, str):
        return value
    names = [part.strip() for part in value.split(",") if part.strip()]
    if not names:
        # An empty text, often from an empty variable, must not pass for "no key".
        raise ValueError("is empty")
    return names


def first_repeated(names: Iterable[str]) -> str | None:
    """Column names do not differ by case alone."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None


def _distinct(names: list[str]) -> list[str]:
    if not all(name.strip() for name in names):
        raise ValueError("holds an empty name")
    twice = first_repeated(names)
    if twice is not None:
        raise ValueError(f"names {twice} twice")
    return names


Names = Annotated[
    list[str],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    AfterValidator(_distinct),
]
ColumnName = Annotated[str, Field(min_length=1)]


Scalar = str | int | float | bool | date | datetime

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _named(values: dict[str, Scalar]) -> dict[str, Scalar]:
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name} cannot be the name of a variable: use letters, digits and _")
    return values


TemplateVars = Annotated[dict[str, Scalar], AfterValidator(_named)]
