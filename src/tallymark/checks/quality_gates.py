"""From the `quality` rules of a pipeline to gates for one plan: its columns, types and time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

from sqlglot import exp

from tallymark.config.quality_section import QualityConfig, RangeConfig, key_name
from tallymark.config.query_files import QualityTest
from tallymark.config.yaml_file import (
    KeyPath,
    Position,
    Problem,
    config_error,
    did_you_mean,
    key_text,
    listed,
)
from tallymark.errors import ConfigError
from tallymark.model.gate import AFTER, MOMENT, Check, Gate, MeasureCheck, QueryCheck, RowCheck, Severity
from tallymark.model.plan import ORDERED, Plan
from tallymark.model.section import Scalar
from tallymark.model.table import Column, find_column

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES = ("timestamp", "timestamp_ntz", "date")
_LISTABLE = (*_NUMBERS, "string", "boolean", "date")


@dataclass(frozen=True)
class Quality:
    """The quality rules and tests that a pipeline declares."""

    rules: QualityConfig = field(default_factory=QualityConfig)
    tests: tuple[QualityTest, ...] = ()
    variables: Mapping[str, Scalar] = field(default_factory=dict)  # for the tests' templates
    origins: Mapping[KeyPath, Position] = field(default_factory=dict)  # of the rules


def rule_gates(quality: Quality, plan: Plan) -> list[Gate]:
    """Raises ConfigError for a column that the table will not have, or whose type the rule is not for."""
    return list(_Rules(quality, plan.columns, plan.as_of).gates())


@dataclass(frozen=True)
class _Rules:
    quality: Quality
    columns: Sequence[Column]
    as_of: datetime

    def gates(self) -> Iterator[Gate]:
        rules = self.quality.rules
        if rules.min_rows is not None:
            yield self._gate("min_rows", _min_rows(rules.min_rows))
        for name in rules.required_non_null:
            column = self._column("required_non_null", name)
            yield self._gate(
                "required_non_null", RowCheck(exp.Is(this=_value(column), expression=exp.null())), name
            )
        for key in rules.unique_keys:
            columns = [self._column("unique_keys", name) for name in key]
            yield self._gate("unique_keys", _repeated(columns), key_name(key))
        for name, limits in rules.numeric_ranges.items():
            column = self._column("numeric_ranges", name, name, kinds=_NUMBERS, meant="numbers")
            yield self._gate("numeric_ranges", RowCheck(_outside(column, limits)), name)
        for name, values in rules.accepted_values.items():
            meant = "strings, numbers, dates and booleans"
            column = self._column("accepted_values", name, name, kinds=_LISTABLE, meant=meant)
            yield self._gate("accepted_values", self._not_among(column, values), name)
        if rules.freshness is not None:
            yield self._gate("freshness", self._stale())

    def _gate(self, kind: str, check: Check, rule: str = "") -> Gate:
        warns = self.quality.rules.only_warns(kind, rule)
        return Gate(f"{kind}.{rule}" if rule else kind, Severity.WARN if warns else Severity.ERROR, check)

    def _column(
        self, kind: str, name: str, *below: str, kinds: Sequence[str] = (), meant: str = ""
    ) -> Column:
        found = find_column(self.columns, name)
        if found is None:
            names = [column.name for column in self.columns]
            hint = did_you_mean(name, names) or f"it will have {listed(names, 'and')}"
            raise self._wrong((kind, *below), f"the table has no column {name}", hint)
        if kinds and found.type.partition("(")[0] not in kinds:
            message = f"column {found.name} is of type {found.type}; this rule is for {meant}"
            raise self._wrong((kind, *below), message, "set the type of the column under `columns`")
        return found

    def _wrong(self, path: KeyPath, message: str, hint: str) -> ConfigError:
        full = ("quality", *path)
        at = full
        while at and at not in self.quality.origins:
            at = at[:-1]
        place = self.quality.origins.get(at, Position(0, 0))
        return config_error([Problem(place.file, place.line, place.column, key_text(full), message, hint)])

    def _not_among(self, column: Column, values: Sequence[Scalar]) -> RowCheck:
        accepted = [self._listed_value(column, value) for value in values]
        found = exp.In(this=_ordered(_value(column), column), expressions=accepted)
        return RowCheck(exp.and_(exp.Is(this=_value(column), expression=exp.null()).not_(), found.not_()))

    def _listed_value(self, column: Column, value: Scalar) -> exp.Expr:
        kind = column.type.partition("(")[0]
        match value:
            case bool() if kind == "boolean":
                return exp.Boolean(this=value)
            case int() | float() if kind in _NUMBERS and not isinstance(value, bool):
                return _ordered(_number(value), column)
            case date() if kind == "date" and not isinstance(value, datetime):
                return exp.Literal.string(value.isoformat())
            case str() | int() | float() if kind == "string" and not isinstance(value, bool):
                return exp.Literal.string(str(value))
            case _:
                message = f"{value} is not a {column.type}, the type of column {column.name}"
                hint = "write a value of that type; strings go in quotes"
                raise self._wrong(("accepted_values", column.name), message, hint)

    def _stale(self) -> MeasureCheck:
        rule = self.quality.rules.freshness
        assert rule is not None  # noqa: S101
        column = self._column("freshness", rule.column, kinds=_TIMES, meant="timestamps and dates")
        try:
            oldest = (self.as_of - rule.max_age_value).astimezone(UTC)
        except OverflowError:
            oldest = datetime.min.replace(tzinfo=UTC)
        latest = exp.Max(this=_value(column))
        nothing = exp.Is(this=latest.copy(), expression=exp.null())
        too_old = exp.LT(this=latest.copy(), expression=_moment(oldest, column.type))
        return MeasureCheck("latest", latest, exp.or_(nothing, too_old))


def _value(column: Column) -> exp.Expr:
    return exp.column(column.name, quoted=True)


def _min_rows(least: int) -> MeasureCheck:
    count = exp.Count(this=exp.Star())
    too_few = exp.LT(this=count.copy(), expression=exp.Literal.number(least))
    return MeasureCheck("row_count", count, too_few)


def _repeated(columns: Sequence[Column]) -> QueryCheck:
    """A key with NULL in it is not counted: `required_non_null` is the rule for that."""
    values = [_value(column) for column in columns]
    filled = exp.and_(*(exp.Is(this=value.copy(), expression=exp.null()).not_() for value in values))
    copies = exp.Count(this=exp.Star())
    query = exp.select(*values, exp.alias_(copies.copy(), "copies")).from_(exp.to_table(AFTER)).where(filled)
    several = exp.GT(this=copies, expression=exp.Literal.number(1))
    return QueryCheck(query.group_by(*(value.copy() for value in values)).having(several))


def _outside(column: Column, limits: RangeConfig) -> exp.Expr:
    sides: list[exp.Expr] = []
    if limits.min is not None:
        sides.append(_compared(exp.LT, column, limits.min))
    if limits.max is not None:
        sides.append(_compared(exp.GT, column, limits.max))
    return exp.or_(*sides)


def _compared(how: type[exp.Binary], column: Column, limit: int | float) -> exp.Expr:
    return how(this=_ordered(_value(column), column), expression=_ordered(_number(limit), column))


def _ordered(value: exp.Expr, column: Column) -> exp.Expr:
    """Engines that store decimals as text must compare them as numbers."""
    if not column.type.startswith("decimal"):
        return value
    return exp.Anonymous(this=ORDERED, expressions=[value, exp.Literal.string(column.type)])


def _number(number: int | float) -> exp.Expr:
    """With all digits and no exponent, so that engines read a decimal and not a float."""
    return exp.Literal(this=format(Decimal(str(number)), "f"), is_string=False)


def _moment(at: datetime, spark_type: str) -> exp.Expr:
    match spark_type:
        case "timestamp":
            return exp.Anonymous(this=MOMENT, expressions=[exp.Literal.string(at.isoformat())])
        case "timestamp_ntz":
            return exp.Literal.string(at.replace(tzinfo=None).isoformat(" ", "microseconds"))
        case _:
            return exp.Literal.string(at.date().isoformat())
