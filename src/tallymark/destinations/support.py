"""What the documentation says about destinations, from what they say about themselves."""

from __future__ import annotations

from collections.abc import Callable

from tallymark.destinations.contract import Capabilities
from tallymark.destinations.delta.destination import DeltaDestination
from tallymark.destinations.duckdb.engine import DuckDbEngine
from tallymark.destinations.postgres.engine import PostgresEngine
from tallymark.destinations.sqlite.engine import SqliteEngine
from tallymark.model.settings import Strategy

BUILT: dict[str, Capabilities] = {
    "Delta": DeltaDestination.capabilities,
    "SQLite": SqliteEngine.capabilities,
    "DuckDB": DuckDbEngine.capabilities,
    "PostgreSQL": PostgresEngine.capabilities,
}
NOT_YET = ("Iceberg", "Parquet", "BigQuery", "Databricks")

BEGIN, END = "<!-- begin support -->", "<!-- end support -->"

_ABILITIES: dict[str, Callable[[Capabilities], str]] = {
    "`type`": lambda can: f"`{can.name}`",
    "nested values": lambda can: "native" if can.nested_types else "as JSON",
    "new columns (`schema_evolution: add`)": lambda can: _yes(can.schema_evolution),
    "earlier versions of a table can be read": lambda can: _yes(can.time_travel),
    "commits of other writers are noticed": lambda can: _yes(can.sees_foreign_commits),
    "other writers wait while a load labels and writes": lambda can: _yes(can.locks_while_loading),
    "[views](../how-to/transform.md#views) (`materialized: view`)": lambda can: _yes(can.views),
}


def with_support(page: str) -> str:
    """The page with a fresh table between its marks; what people wrote around it stays."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{support_table()}{END}{after}"


def support_table() -> str:
    """A destination knows no strategy: it applies plans, so one that is built does every strategy."""
    names = [*BUILT, *NOT_YET]
    later = ["not yet"] * len(NOT_YET)
    rows = [
        ["", *names],
        ["---"] * (len(names) + 1),
        *(
            [f"[`{strategy}`](strategies.md#{strategy})", *["yes"] * len(BUILT), *later]
            for strategy in Strategy
        ),
        *([what, *map(tell, BUILT.values()), *[""] * len(NOT_YET)] for what, tell in _ABILITIES.items()),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _yes(it_does: bool) -> str:
    return "yes" if it_does else "no"
