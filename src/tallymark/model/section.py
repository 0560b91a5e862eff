"""What every part of a configuration file has in common: strict keys, names and values as people write them,
and secrets that are never shown. Code that prints, logs or stores text that may hold one passes it through
`redact`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from threading import Lock
from typing import Annotated, Any, get_args
from urllib.parse import quote, quote_plus, unquote

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


HIDDEN = "***"
# A shorter value would blot out half of every text ("1", "eu"), and protects nothing.
SHORTEST_SECRET = 4
SHORTEST_LINE_OF_A_SECRET = 8
# A shorter value is hidden only where it stands alone: "prod" must not blot out a part of "products".
SHORTEST_PART = 8
_TRIVIAL = re.compile(r"(?i)true|false|null|none|yes|no|on|off|[+-]?\d{1,5}|\W*")

# A reference to a variable is no secret: it is what an error shows instead of one.
_NO_REFERENCE = r"(?!\$\{[^}\s]*\})"
# Up to the last @ of the word: a password may hold @, : and /. A port is not the begin of a password.
_URL_PASSWORD = re.compile(rf"(://[^\s/:@'\"]*):(?!\d+(?:/|$|\s)){_NO_REFERENCE}(?:(?!://)[^\s'\"<>])*@")
_CONFIDENTIAL = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|token|credentials?|signature|(?<![A-Za-z0-9])sig"
    r"|(?:api|access|account|private|secret|shared|encryption)[._-]?(?:access[._-]?)?key)"
)
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# `password = x`, `sig=x&`, `;token=x`, and `"secret": "x"` as in JSON, whatever stands around the name.
_SECRET_SETTING = re.compile(
    rf"(?i)({_CONFIDENTIAL}[\w.]*)(?:([\"']?\s*=\s*){_NO_REFERENCE}(?:{_QUOTED}|[^\s&;,'\")\]}}]+)"
    rf"|([\"']\s*:\s*){_NO_REFERENCE}{_QUOTED})"
)


def _hidden_setting(found: re.Match[str]) -> str:
    value = found[0][len(found[1]) + len(found[2] or found[3]) :]
    quote_mark = value[0] if value[0] in "\"'" else ""
    if "${" in value:
        return found[0]
    return f"{found[1]}{found[2] or found[3]}{quote_mark}{HIDDEN}{quote_mark}"


class Redactor:
    """Replaces the values it was told, in every spelling in which a driver may echo them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._spellings: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def remember(self, value: str) -> None:
        """Also the secrets that it holds: those of an address or of a connection string."""
        if is_trivial(value):
            return
        inner = [part for part in _secrets_in(value) if not is_trivial(part)]
        with self._lock:
            for each in (value, *inner):
                self._spellings |= _spellings(each)
            # The longest first, so that a secret which holds another one is hidden whole.
            longest_first = sorted(self._spellings, key=lambda spelling: (-len(spelling), spelling))
            self._pattern = re.compile("|".join(map(_found_by, longest_first)))

    def redact(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
        return _SECRET_SETTING.sub(_hidden_setting, text)


def is_trivial(value: str) -> bool:
    """Values that are in every text: to hide them would tell nobody anything, and spoil the text."""
    return len(value) < SHORTEST_SECRET or _TRIVIAL.fullmatch(value.strip()) is not None


def _found_by(spelling: str) -> str:
    escaped = re.escape(spelling)
    if len(spelling) >= SHORTEST_PART:
        return escaped
    begin = r"(?<![A-Za-z0-9_])" if spelling[0].isalnum() else ""
    end = r"(?![A-Za-z0-9_])" if spelling[-1].isalnum() else ""
    return f"{begin}{escaped}{end}"


def _secrets_in(value: str) -> Iterator[str]:
    for found in re.finditer(r"://[^\s/:@]*:(\S*)@", value):
        yield found[1]
        yield unquote(found[1])
    for found in re.finditer(rf"(?i){_CONFIDENTIAL}[\w.]*\s*=\s*({_QUOTED}|[^\s&;,]+)", value):
        yield found[1].strip("\"'")
        yield unquote(found[1].strip("\"'"))


def _spellings(value: str) -> set[str]:
    whole = {
        value,
        value.strip(),
        quote(value, safe=""),
        quote_plus(value),
        unquote(value),
        _lower_escapes(quote(value, safe="")),
        _lower_escapes(quote_plus(value)),
        quote(quote(value, safe=""), safe=""),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
    }
    lines = {line.strip() for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE_OF_A_SECRET}
    return {spelling for spelling in whole | lines if len(spelling) >= SHORTEST_SECRET}


_of_this_process = Redactor()


def _lower_escapes(text: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda escape: escape[0].lower(), text)


def remember(value: str) -> None:
    """From now on `redact` hides this value."""
    _of_this_process.remember(value)


def redact(text: str) -> str:
    """The text without secrets."""
    return _of_this_process.redact(text)


def redacted(value: object) -> object:
    """As JSON would have it, without secrets. Only texts can hold one: a number stays a number."""
    match value:
        case str():
            return redact(value)
        case dict():
            return {redact(str(name)): redacted(item) for name, item in value.items()}
        case list() | tuple():
            return [redacted(item) for item in value]
        case None | bool() | int() | float():
            return value
        case _:
            return redact(str(value))
