"""A small project on disk that tests fill with files and run."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

import tallymark as tm
from delta_rs import rows_of
from tallymark.model.report import Outcome, PipelineReport, PlanReport

ORDERS = """
source: {files: landing/orders/*}
columns:
  - {name: order_id, type: bigint, required: true}
  - {name: status, type: string}
  - {from: Amt, name: amount, type: "decimal(12,2)"}
merge_strategy: upsert
unique_key: [order_id]
quarantine: {max_fraction: 0.5, max_rows: 100}
"""


@dataclass
class Shop:
    root: Path
    spark: SparkSession

    def pipeline(self, name: str, config: str) -> None:
        folder = self.root / "pipelines" / Path(*name.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(config)

    def drop(self, name: str, content: str | bytes) -> Path:
        path = self.root / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def open(self) -> tm.Project:
        return tm.Project(self.root, spark=self.spark)

    def run(self, name: str = "silver.orders", **options: Any) -> PipelineReport:
        with self.open() as project:
            return project.run(name, **options).pipelines[0]

    def load(self, name: str = "silver.orders", **options: Any) -> PipelineReport:
        """A run that must not fail."""
        report = self.run(name, **options)
        assert report.outcome in (Outcome.LOADED, Outcome.NOTHING_NEW), report.failures
        return report

    def delta(self, table: str = "silver.orders") -> DeltaTable:
        return DeltaTable(str(self.place(table)))

    def place(self, table: str) -> Path:
        return self.root / "warehouse" / Path(*table.split("."))

    def rows(self, table: str = "silver.orders", *names: str) -> list[tuple[Any, ...]]:
        rows = rows_of(self.place(table))
        wanted = names or ("order_id", "status")
        return sorted(tuple(row[name] for name in wanted) for row in rows)

    def version(self, table: str = "silver.orders") -> int:
        return self.delta(table).version()

    def markers(self, table: str = "silver.orders") -> list[str]:
        """Batch ids in the commit log, oldest first, as delta-rs sees them."""
        commits = reversed(self.delta(table).history())
        return [json.loads(c["userMetadata"])["batch_id"] for c in commits if "userMetadata" in c]

    def lose_ledger(self) -> None:
        for file in (self.root / ".tallymark").glob("ledger.db*"):
            file.unlink()


class Killed(BaseException):
    """Stands for the death of the process."""


def dies(*args: Any, **kwargs: Any) -> None:
    raise Killed


def csv(*rows: str) -> str:
    return "order_id,status,Amt\n" + "".join(f"{row}\n" for row in rows)


@dataclass
class DatabaseShop(Shop):
    """Its tables are in a SQLite file: loads take a fraction of what Delta takes."""

    @classmethod
    def at(cls, root: Path, spark: SparkSession) -> DatabaseShop:
        (root / "tallymark.yaml").write_text(
            "destinations: {db: {type: sqlite, path: shop.db}}\ndefaults: {destination: db}\n"
        )
        (root / "landing/orders").mkdir(parents=True)
        return cls(root, spark)

    def rows(self, table: str = "silver.orders", *names: str) -> list[tuple[Any, ...]]:
        wanted = ", ".join(names or ("order_id", "status"))
        return sorted(self.sql(f'SELECT {wanted} FROM "{table}"'))

    def has(self, table: str) -> bool:
        return (table,) in self.sql("SELECT name FROM sqlite_schema")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.root / "shop.db")) as database, database:
            return database.execute(statement).fetchall()

    def plan(self, name: str) -> PlanReport:
        with self.open() as project:
            [planned] = project.plan(name)
        assert planned.failure is None, planned.failure
        return planned
