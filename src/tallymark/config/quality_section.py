"""The `quality` section of a pipeline: what must hold for its table after every load."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from tallymark.config.yaml_file import closest
from tallymark.model.section import ColumnName, Names, Scalar, Section, as_list, first_repeated

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,9})\s*([smhdw])")


def parse_age(text: str) -> timedelta:
    """`2d`, `36h`, `90m`, `45s` or `1w`."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ValueError("expected an age such as 2d, 36h, 90m, 45s or 1w")
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        raise ValueError("is too long") from None


def _as_keys(value: object) -> object:
    """`a, b` and `[a, b]` are one key of two columns, `[[a, b], [c]]` are two keys."""
    value = as_list(value)
    one_key = isinstance(value, list) and value and not any(isinstance(item, list) for item in value)
    return [value] if one_key else value


Keys = Annotated[
    list[Names], BeforeValidator(_as_keys, json_schema_input_type=str | list[str] | list[list[str]])
]


class RangeConfig(Section):
    min: int | float | None = Field(None, description="The smallest allowed number")
    max: int | float | None = Field(None, description="The largest allowed number")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class FreshnessConfig(Section):
    column: ColumnName = Field(description="A timestamp or date; its latest value counts")
    max_age: str = Field(description="How old it may be at the time of the batch: 2d, 36h, 90m, 45s, 1w")

    @field_validator("max_age")
    @classmethod
    def _an_age(cls, text: str) -> str:
        parse_age(text)
        return text

    @property
    def max_age_value(self) -> timedelta:
        return parse_age(self.max_age)


class QualityConfig(Section):
    min_rows: int | None = Field(None, ge=0, description="The table has at least this many rows")
    required_non_null: Names = Field(
        default_factory=list, description="Columns that hold a value in every row"
    )
    unique_keys: Keys = Field(
        default_factory=list,
        description="Columns whose values together occur once; several keys as a list of lists. "
        "Rows with NULL in a key do not count",
    )
    numeric_ranges: dict[str, RangeConfig] = Field(
        default_factory=dict, description="Columns of numbers and their limits; NULL is within"
    )
    accepted_values: dict[str, list[Scalar]] = Field(
        default_factory=dict, description="Columns and the values that they may hold beside NULL"
    )
    freshness: FreshnessConfig | None = Field(None, description="How old the latest row may be")
    warn: Names = Field(
        default_factory=list,
        description="Rules that only warn, such as freshness or accepted_values.status; others fail the load",
    )

    @field_validator("accepted_values")
    @classmethod
    def _some_values(cls, accepted: dict[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        for name, values in accepted.items():
            if not values:
                raise ValueError(f"{name} has no values; name at least one")
        return accepted

    @field_validator("numeric_ranges", "accepted_values")
    @classmethod
    def _each_column_once(cls, rules: dict[str, object]) -> dict[str, object]:
        twice = first_repeated(rules)
        if twice is not None:
            raise ValueError(f"names {twice} twice")
        return rules

    @model_validator(mode="after")
    def _warns_of_its_rules(self) -> Self:
        known = self.rule_names
        for name in self.warn:
            if name.casefold() not in {rule.casefold() for rule in known}:
                meant = closest(name, known)
                hint = f"did you mean {meant}?" if meant else f"it has {', '.join(known) or 'none'}"
                raise ValueError(f"warn names {name}, which is not a rule of this pipeline; {hint}")
        return self

    @property
    def rule_names(self) -> list[str]:
        """What `warn` may name: a kind of rule, or one rule of it."""
        found = [(kind, rules) for kind, rules in self._by_kind() if rules]
        return [
            name for kind, rules in found for name in (kind, *(f"{kind}.{rule}" for rule in rules if rule))
        ]

    def only_warns(self, kind: str, rule: str = "") -> bool:
        warned = {name.casefold() for name in self.warn}
        return kind in warned or f"{kind}.{rule}".casefold() in warned

    def _by_kind(self) -> list[tuple[str, list[str]]]:
        return [
            ("min_rows", [] if self.min_rows is None else [""]),
            ("required_non_null", self.required_non_null),
            ("unique_keys", [key_name(key) for key in self.unique_keys]),
            ("numeric_ranges", list(self.numeric_ranges)),
            ("accepted_values", list(self.accepted_values)),
            ("freshness", [] if self.freshness is None else [""]),
        ]


def key_name(columns: list[str]) -> str:
    return "+".join(columns)
