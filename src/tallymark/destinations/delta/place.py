"""Where a Delta table is, and whether it has gone back: told without Spark, not even imported."""

from __future__ import annotations

from dataclasses import dataclass

from tallymark.destinations.delta.log_files import restored_since
from tallymark.model.receipt import Receipt


@dataclass(frozen=True)
class DeltaPlace:
    """With neither `root` nor `catalog`, a table's name is its folder or URL."""

    root: str | None = None
    catalog: str | None = None

    def path(self, table: str) -> str | None:
        """None: the catalog knows."""
        if self.root is not None:
            return f"{self.root.rstrip('/')}/{table.replace('.', '/')}"
        return table if self.catalog is None else None

    def table_key(self, table: str) -> str:
        return f"delta:{self.path(table) or f'{self.catalog}.{table}'}"

    def has_gone_back(self, table: str, last: Receipt) -> bool:
        path = self.path(table)
        return path is not None and restored_since(path, int(last.version))
