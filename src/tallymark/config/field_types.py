"""Types of values that several sections share: lists of column names, and variables for templates."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field


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
