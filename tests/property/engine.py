"""Runs the queries of a plan in an embedded engine and applies the labels in plain Python, without Spark and
without a destination: thousands of examples in seconds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from typing import Any

import duckdb
from sqlglot import exp

from oracle import Row, Tied
from tallymark.destinations.queries import render
from tallymark.model.plan import COPIES, FROM_BATCH, LABEL, POSITION, Label, Merge, Plan
from tallymark.model.receipt import Counts
from tallymark.model.settings import MergeSettings
from tallymark.model.table import Column, TableShape
from tallymark.strategies.build import build_plan

AS_OF = datetime(2026, 11, 1, 10, 15, tzinfo=UTC)
MOMENT = "%Y-%m-%d %H:%M:%S.%f"
_TYPES = {"string": "VARCHAR", "boolean": "BOOLEAN", "timestamp": "VARCHAR"}  # as_of is a text here

_PLANS: dict[tuple[object, ...], Plan] = {}  # never emptied, so that the queries in it keep their ids
_TEXTS: dict[tuple[int, str], str] = {}


class LabelEngine:
    """A table and its tombstones, loaded batch by batch."""

    def __init__(self, engine: str, settings: MergeSettings, columns: tuple[Column, ...]):
        self._engine = engine
        self._settings = settings
        self._columns = columns
        self.rows: list[Row] = []
        self._gone: list[Row] = []
        self._shape: TableShape | None = None

    def seed(self, rows: list[Row]) -> None:
        """A legacy table, which may hold duplicates."""
        self.rows, self._shape = list(rows), TableShape(self._columns, "1")

    def load(self, batch: list[Row], as_of: datetime = AS_OF) -> Counts:
        plan = self._plan(as_of)
        assert isinstance(plan.shape, Merge)
        query = self._prepared(plan, batch)
        for refusal in plan.shape.refusals:
            if found := query(refusal.found):
                raise Tied(found)
        repaired = 0
        if plan.shape.duplicates.whole_table:
            repaired = sum(row[COPIES] - 1 for row in query(plan.shape.duplicates.keys))
            if repaired:
                self.rows = query(plan.shape.duplicates.survivors)
                query = self._prepared(plan, batch)
        labelled = query(plan.shape.labels)
        if plan.shape.tombstones:
            self._gone += query(plan.shape.tombstones.new)
        self._apply(plan, labelled)
        self._shape = TableShape(plan.columns, "1", unique_by=plan.unique_by)
        return _counts(labelled, len(batch), repaired)

    def _plan(self, as_of: datetime) -> Plan:
        """Parsing costs more than running, and the same plans come again and again."""
        asked = (repr(self._settings), self._columns, repr(self._shape), as_of)
        if asked not in _PLANS:
            _PLANS[asked] = build_plan("t", self._settings, self._columns, self._shape, as_of=as_of)
        return _PLANS[asked]

    def _prepared(self, plan: Plan, batch: list[Row]) -> Any:
        assert isinstance(plan.shape, Merge)
        connection: Any = sqlite3.connect(":memory:") if self._engine == "sqlite" else _duckdb()
        held = plan.current.columns if plan.current else plan.columns
        _fill(connection, "current", held, self.rows)
        technical = [{**row, "_tm_file": 0, "_tm_block": 0, "_tm_row": i} for i, row in enumerate(batch)]
        _fill(connection, "incoming", (*plan.given, *POSITION), technical)
        if plan.shape.tombstones:
            _fill(connection, "tombstones", plan.shape.tombstones.columns, self._gone)
        moment = plan.as_of.strftime(MOMENT)
        as_of = exp.Literal.string(moment)

        def query(text: exp.Query) -> list[Row]:
            if (id(text), self._engine) not in _TEXTS:
                _TEXTS[id(text), self._engine] = render(text, self._engine, as_of=as_of)
            cursor = connection.execute(_TEXTS[id(text), self._engine])
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        return query

    def _apply(self, plan: Plan, labelled: list[Row]) -> None:
        assert isinstance(plan.shape, Merge)
        match, names = plan.shape.match, [column.name for column in plan.columns]
        table = {tuple(row[name] for name in match): row for row in self.rows}
        assert len(table) == len(self.rows), "two rows share their match"
        for row in labelled:
            key, content = tuple(row[name] for name in match), {name: row[name] for name in names}
            match row[LABEL]:
                case Label.INSERT:
                    assert key not in table
                    table[key] = content
                case Label.UPDATE | Label.CLOSE:
                    assert key in table
                    table[key] = content
                case Label.DELETE:
                    del table[key]
        flags = [column.name for column in plan.columns if column.type == "boolean"]
        self.rows = [{**row, **{flag: bool(row[flag]) for flag in flags}} for row in table.values()]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One for all: opening one costs more than an example."""
    return duckdb.connect(config={"threads": 1})


def _fill(connection: Any, table: str, columns: tuple[Column, ...], rows: list[Row]) -> None:
    declared = ", ".join(f'"{c.name}" {_TYPES.get(c.type, "BIGINT")}' for c in columns)
    connection.execute(f'DROP TABLE IF EXISTS "{table}"')
    connection.execute(f'CREATE TABLE "{table}" ({declared})')
    if rows:
        marks = ", ".join("?" * len(columns))
        values = [[row.get(c.name) for c in columns] for row in rows]
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)


def _counts(labelled: list[Row], total: int, repaired: int) -> Counts:
    assert sum(bool(row[FROM_BATCH]) for row in labelled) == total
    number = Counter(row[LABEL] for row in labelled)
    return Counts(
        inserted=number[Label.INSERT],
        updated=number[Label.UPDATE],
        closed=number[Label.CLOSE],
        deleted=number[Label.DELETE] + repaired,
        unchanged=number[Label.UNCHANGED],
        skipped=number[Label.SKIP],
        total=total,
    )
