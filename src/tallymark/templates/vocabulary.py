"""Every name that a template knows, bound to one context."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tallymark.config.problem import closest
from tallymark.model.settings import Strategy
from tallymark.templates.context import Context
from tallymark.templates.faults import Fault
from tallymark.templates.literals import SqlText, TypedValue
from tallymark.templates.names import Asked, constant_name

MOST_LOOPS = 100_000  # that all the ranges of a template may count, together

QUESTIONS = {f"is_{strategy}": strategy for strategy in Strategy}
NAMES = frozenset(
    {*Asked, *QUESTIONS, "this", "table_exists", "run_started_at", "watermark_value", "var", "range"}
)
# What is absent before the first load, and how a template asks whether it is there.
GUARDS = {
    "watermark_value": "there is none before the first load; guard it by {% if is_incremental() %}",
    "this": "the table does not exist before the first load; guard it by {% if table_exists %}",
}


@dataclass
class Vocabulary:
    """Remembers which inputs were asked for and what they became. One for each rendering."""

    context: Context
    refs: dict[str, str] = field(default_factory=dict)  # each name is resolved once
    zones: dict[str, str] = field(default_factory=dict)
    counted: int = 0

    def names(self) -> dict[str, object]:
        context = self.context
        names: dict[str, object] = {
            Asked.REF.value: self.ref,
            Asked.LANDING_ZONE.value: self.landing_zone,
            "table_exists": context.table_exists,
            "run_started_at": context.run_started_at,
            "var": self.var,
            "range": self.range,
        }
        if context.table_exists:
            names["this"] = SqlText(context.this)
        if context.watermark is not None:
            names["watermark_value"] = TypedValue(context.watermark.value, context.watermark.type)
        return names | {name: self._question(strategy) for name, strategy in QUESTIONS.items()}

    def relations(self) -> list[str]:
        """All that the query may read."""
        own = [self.context.this] if self.context.table_exists else []
        return [*self.refs.values(), *self.zones.values(), *own]

    def ref(self, *names: object) -> SqlText:
        name = _checked(Asked.REF, names)
        if name not in self.refs:
            self.refs[name] = self.context.refs(name)
        return SqlText(self.refs[name])

    def landing_zone(self, *names: object) -> SqlText:
        name = _checked(Asked.LANDING_ZONE, names)
        if name not in self.zones:
            self.zones[name] = self.context.zones(name)
        return SqlText(self.zones[name])

    def var(self, *arguments: object) -> object:
        name, *default = arguments or (None,)
        if not isinstance(name, str) or len(default) > 1:
            raise Fault("var takes a name in quotes and perhaps a default", "write var('name', default)")
        if name in self.context.variables:
            return self.context.variables[name]
        if default:
            return default[0]
        meant = closest(name, self.context.variables)
        hint = f"did you mean {meant}?" if meant else f"set it under vars, or write var('{name}', default)"
        raise Fault(f"there is no variable {name}", hint)

    def range(self, *limits: int) -> range:
        numbers = range(*limits)
        try:
            self.counted += len(numbers)
        except OverflowError:
            self.counted = MOST_LOOPS + 1
        if self.counted > MOST_LOOPS:
            raise Fault(f"the ranges of a template may count to {MOST_LOOPS} together", "count with SQL")
        return numbers

    def _question(self, strategy: Strategy) -> Callable[..., bool]:
        def answer(*arguments: object) -> bool:
            if arguments:
                raise Fault(f"is_{strategy} takes nothing", f"write is_{strategy}()")
            return self.context.is_strategy(strategy)

        return answer


def _checked(asked: Asked, names: tuple[object, ...]) -> str:
    name, fault = constant_name(asked, names)
    if fault is not None:
        raise Fault(*fault)
    return name


def unknown_name(name: str, others: Iterable[str] = ()) -> tuple[str, str]:
    """What to say about a name that a template does not know."""
    if name in GUARDS:
        return f"{name} is absent", GUARDS[name]
    meant = closest(name, [*NAMES, *others])
    return f"there is no {name} in templates", f"did you mean {meant}?" if meant else ""
