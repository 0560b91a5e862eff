"""How a kind of destination is declared: once, in the `__init__.py` of its folder, with no driver imported.

Configuration, JSON Schema, the reference pages, `doctor`, Spark sessions, the quarantine and the conformance
suite read the declaration. Nothing else knows which kinds there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from tallymark.errors import DestinationError
from tallymark.model.section import Section
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.spark.launch_settings import SparkNeeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.destinations.contract import Destination, TableLocator


@dataclass(frozen=True)
class Supported:
    """The destination does it."""


@dataclass(frozen=True)
class Gap:
    """The destination does not do it. The reason and the hint are shown to the user as they are."""

    reason: str
    hint: str = ""


Support = Supported | Gap
YES = Supported()


def every_strategy(**gaps: Gap) -> Mapping[Strategy, Support]:
    """All strategies, except those named: `every_strategy(scd2=Gap("…"))`."""
    named = {Strategy(name): gap for name, gap in gaps.items()}
    return MappingProxyType({strategy: named.get(strategy, YES) for strategy in Strategy})


@dataclass(frozen=True)
class Capabilities:
    """What a kind of destination does and does not do. What is a gap is refused before a load starts."""

    name: str  # of the kind
    nested_types: bool  # False: nested values are kept as JSON
    time_travel: bool  # earlier versions of a table can be read
    sees_foreign_commits: bool  # a commit of another writer since the plan was made is noticed
    locks_while_loading: bool  # other writers of the table wait from labelling until the commit
    views: Support  # `materialized: view`: a query can be kept in the place of a table
    schema_evolution: Support = YES  # `schema_evolution: add`: a load can add columns
    partition_column: Support = YES  # `partition_column`: slices of a table are replaced
    takes_arrow: bool = False  # rows that are already on the driver are taken from there
    strategies: Mapping[Strategy, Support] = field(default_factory=every_strategy)

    def __post_init__(self) -> None:
        if missing := set(Strategy) - set(self.strategies):
            raise ValueError(f"{self.name} does not say whether it supports {', '.join(sorted(missing))}")

    def gaps(
        self, settings: MergeSettings, *, is_view: bool = False, adds_columns: bool = False
    ) -> Iterator[tuple[str, Gap]]:
        """What is asked for and not supported: the key of config.yaml that asks for it, and the gap."""
        asked = (
            [("materialized", self.views)]
            if is_view
            else [
                ("merge_strategy", self.strategies[settings.strategy]),
                ("cdc", self.strategies[Strategy.SCD2] if _feeds_history(settings) else YES),
                ("partition_column", self.partition_column if settings.partition_column else YES),
                ("schema_evolution", self.schema_evolution if adds_columns else YES),
            ]
        )
        for key, support in asked:
            match support:
                case Gap(reason, hint):
                    yield key, Gap(reason, hint or f"choose another {key}, or another destination")
                case Supported():
                    pass


def _feeds_history(settings: MergeSettings) -> bool:
    return settings.strategy is Strategy.CDC and settings.cdc is not None and settings.cdc.history


class DestinationOptions(Section):
    """One entry under `destinations` in tallymark.yaml. Each kind has its own subclass."""

    type: str


Resolve = Callable[[str], str]  # a path relative to the project becomes absolute; a URL stays as it is
Options = TypeVar("Options", bound=DestinationOptions)


@dataclass(frozen=True)
class Driver:
    """A Python package that only this kind needs."""

    title: str  # of the kind
    module: str
    extra: str  # pip install 'tallymark[extra]'

    def missing(self) -> DestinationError:
        return DestinationError(
            f"the driver of {self.title} is not installed",
            hint=f"install it: pip install 'tallymark[{self.extra}]'",
        )


@dataclass(frozen=True)
class Caution:
    """What users of a destination must see to themselves, and what to do."""

    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.text}; {self.fix}"


@dataclass(frozen=True)
class DestinationKind(Generic[Options]):
    name: str  # `type:` in tallymark.yaml
    title: str  # for people
    options: type[Options]
    capabilities: Capabilities
    open: Callable[[Options, Callable[[], SparkSession], Resolve], Destination]
    # Two destinations with the same location hold the same tables: then two pipelines may collide.
    location: Callable[[Options, Resolve], str]
    # Shown by `validate` and `doctor`. None: there is nothing that users must see to.
    cautions: Callable[[Options, Resolve], tuple[Caution, ...]] | None = None
    # The folder or URL of a table. None: tables are not in folders of their own.
    folder: Callable[[Options, Resolve, str], str | None] | None = None
    # Names tables without Spark. None: opening the destination does not need Spark either.
    locate: Callable[[Options, Resolve], TableLocator] | None = None
    # Where capabilities depend on the options. None: they do not.
    capabilities_with: Callable[[Options], Capabilities] | None = None
    # A folder in which bad rows of all pipelines can be kept, if these options have one.
    quarantine_root: Callable[[Options, Resolve], str | None] | None = None
    # For a library call that names no destination: the target is a path, a URL or a name in Spark's catalog.
    open_target: Callable[[str, Callable[[], SparkSession]], Destination] | None = None
    spark_needs: SparkNeeds | None = None
    # Where they depend on the options. None: they do not.
    spark_needs_with: Callable[[Options], SparkNeeds] | None = None
    driver: Driver | None = None

    def capabilities_of(self, options: Options) -> Capabilities:
        return self.capabilities if self.capabilities_with is None else self.capabilities_with(options)

    def spark_needs_of(self, options: Options) -> SparkNeeds | None:
        return self.spark_needs if self.spark_needs_with is None else self.spark_needs_with(options)
