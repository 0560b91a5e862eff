"""What every part of a configuration file has in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
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
