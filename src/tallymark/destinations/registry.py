"""Which kinds of destinations there are: the built-in ones, and those that other distributions install.

A distribution adds a kind by an entry point of the group `tallymark.destinations`, whose name is the kind's
and which leads to its DestinationKind. Entry points are read only when a configuration asks for a kind that
is not built in: a run with nothing new does not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from tallymark.destinations import delta, duckdb, iceberg, postgres, sqlite
from tallymark.destinations.declaration import (
    Capabilities,
    Caution,
    DestinationKind,
    DestinationOptions,
    Gap,
    Resolve,
    Support,
    Supported,
)
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy
from tallymark.spark.launch_settings import SparkNeeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.destinations.contract import Destination, TableLocator

AnyKind = DestinationKind[Any]

BUILT_IN: Mapping[str, AnyKind] = {
    kind.name: kind for kind in (delta.KIND, iceberg.KIND, sqlite.KIND, duckdb.KIND, postgres.KIND)
}
DEFAULT: AnyKind = delta.KIND  # where nothing else is configured
QUARANTINE: AnyKind = delta.KIND  # bad rows are kept in tables of this kind
NOT_YET = ("Parquet", "BigQuery", "Databricks")

ENTRY_POINTS = "tallymark.destinations"


def find_kind(name: str) -> AnyKind:
    """Raises ConfigError for a kind that is unknown or cannot be loaded."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = [entry for entry in _third_party() if entry.name == name]
    match found:
        case [entry]:
            return _load(entry)
        case []:
            close = get_close_matches(name, kind_names(), n=1)
            raise ConfigError(
                f"{name} is not a kind of destination",
                hint=f"did you mean {close[0]}?" if close else f"one of {', '.join(kind_names())}",
            )
        case _:
            raise ConfigError(
                f"destination kind {name} is installed by {' and '.join(map(_distribution, found))}",
                hint="uninstall all but one of them",
            )


def kind_names() -> list[str]:
    """Of built-in and installed kinds, whether or not they can be loaded."""
    return [*BUILT_IN, *sorted({entry.name for entry in _third_party()} - BUILT_IN.keys())]


def installed_kinds() -> list[AnyKind]:
    """Built-in kinds and those of other distributions. One that cannot be loaded is left out: the error
    belongs to those who ask for it."""
    kinds = []
    for name in kind_names():
        try:
            kinds.append(find_kind(name))
        except ConfigError:
            continue
    return kinds


def kind_of(options: DestinationOptions) -> AnyKind:
    return find_kind(options.type)


def parse_options(given: Mapping[str, object]) -> DestinationOptions:
    """A destination that is given as in tallymark.yaml, outside of a project. Raises ConfigError."""
    kind = find_kind(str(given.get("type", DEFAULT.name)))
    try:
        return cast(DestinationOptions, kind.options.model_validate(dict(given)))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in ("destination", *fault["loc"]))
        raise ConfigError(f"{where}: {fault['msg']}") from error


def open_destination(
    options: DestinationOptions, spark: Callable[[], SparkSession], resolve: Resolve
) -> Destination:
    """Imports the drivers of this kind, and no others."""
    return kind_of(options).open(options, spark, resolve)


def open_target(target: str, spark: Callable[[], SparkSession]) -> Destination:
    """For a library call that names no destination: the target itself says where the table is."""
    assert DEFAULT.open_target is not None  # noqa: S101
    return DEFAULT.open_target(target, spark)


def locate_tables(options: DestinationOptions, resolve: Resolve) -> TableLocator | None:
    """None: opening the destination needs no Spark either."""
    kind = kind_of(options)
    return None if kind.locate is None else kind.locate(options, resolve)


def cautions(options: DestinationOptions, resolve: Resolve) -> tuple[Caution, ...]:
    kind = kind_of(options)
    return () if kind.cautions is None else kind.cautions(options, resolve)


def quarantine_root(destinations: Iterable[DestinationOptions], resolve: Resolve) -> str | None:
    """In the first destination that has room for the quarantine."""
    for options in destinations:
        kind = kind_of(options)
        root = kind.quarantine_root(options, resolve) if kind.quarantine_root else None
        if root is not None:
            return root
    return None


def spark_needs(destinations: Iterable[DestinationOptions] = ()) -> tuple[SparkNeeds, ...]:
    """Of these destinations, and of the quarantine, which every project has."""
    asked = (QUARANTINE.spark_needs, *(kind_of(options).spark_needs_of(options) for options in destinations))
    needs: list[SparkNeeds] = []
    for need in asked:
        if need is not None and need not in needs:
            needs.append(need)
    return tuple(needs)


def _third_party() -> list[EntryPoint]:
    return [entry for entry in entry_points(group=ENTRY_POINTS) if entry.name not in BUILT_IN]


def _load(entry: EntryPoint) -> AnyKind:
    try:
        loaded = entry.load()
    except Exception as error:
        # Whatever its code raises at import.
        raise ConfigError(
            f"destination kind {entry.name} of {_distribution(entry)} cannot be loaded: "
            f"{type(error).__name__}: {error}",
            hint="upgrade or reinstall that distribution, or report the error to its authors",
        ) from error
    if not isinstance(loaded, DestinationKind) or loaded.name != entry.name:
        raise ConfigError(
            f"destination kind {entry.name} of {_distribution(entry)} cannot be used: "
            f"{entry.value} is not a DestinationKind named {entry.name}",
            hint="report it to the authors of that distribution",
        )
    return loaded


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


# The reference page on destinations.

BEGIN, END = "<!-- begin support -->", "<!-- end support -->"


def _of_strategy(strategy: Strategy, can: Capabilities) -> Support:
    return can.strategies[strategy]


_FACTS: dict[str, Callable[[Capabilities], str]] = {
    "nested values": lambda can: "native" if can.nested_types else "as JSON",
    "earlier versions of a table can be read": lambda can: _yes(can.time_travel),
    "commits of other writers are noticed": lambda can: _yes(can.sees_foreign_commits),
    "other writers wait while a load labels and writes": lambda can: _yes(can.locks_while_loading),
}
_SUPPORT: dict[str, Callable[[Capabilities], Support]] = {
    **{f"[`{each}`](strategies.md#{each})": partial(_of_strategy, each) for each in Strategy},
    "new columns (`schema_evolution: add`)": lambda can: can.schema_evolution,
    "slices of a table (`partition_column`)": lambda can: can.partition_column,
    "[views](../how-to/transform.md#views) (`materialized: view`)": lambda can: can.views,
}


def with_support(page: str) -> str:
    """The page with a fresh table between its marks; what people wrote around it stays."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{support_table()}{END}{after}"


def support_table(kinds: Iterable[AnyKind] = tuple(BUILT_IN.values())) -> str:
    """What each kind declares, with a reason for each gap."""
    kinds = list(kinds)
    names = [*(kind.title for kind in kinds), *NOT_YET]
    rows = [
        ["", *names],
        ["---"] * (len(names) + 1),
        ["`type`", *(f"`{kind.name}`" for kind in kinds), *["not yet"] * len(NOT_YET)],
    ]
    for what, support in _SUPPORT.items():
        rows.append([what, *(_word(support(kind.capabilities)) for kind in kinds), *[""] * len(NOT_YET)])
    for what, fact in _FACTS.items():
        rows.append([what, *(fact(kind.capabilities) for kind in kinds), *[""] * len(NOT_YET)])
    reasons = [
        f"- {kind.title}, {what}: {gap.reason}.\n"
        for kind in kinds
        for what, support in _SUPPORT.items()
        if isinstance(gap := support(kind.capabilities), Gap)
    ]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return table + ("\n" + "".join(reasons) if reasons else "")


def _word(support: Support) -> str:
    match support:
        case Supported():
            return "yes"
        case Gap():
            return "no"


def _yes(it_does: bool) -> str:
    return "yes" if it_does else "no"
