"""The relations that the queries of a plan read, as views in Spark, and all counts of them in one job.

Of the table and its tombstones, only the rows that a batch affects are read (`pruned`), by the plan's hints:

1. Files that cannot hold the batch's keys are not opened: the key ranges are literals in the query.
2. Rows with the batch's keys are found by a join with a broadcast side. Without it, Spark would sort the
   table for each join with it.
3. Of a large table, the columns of `hints.read_first` are read first. Rows whose label they do not decide are
   then read as a whole; in most batches there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

from tallymark.destinations.queries import render
from tallymark.model.plan import (
    COPIES,
    CURRENT,
    FROM_BATCH,
    INCOMING,
    LABEL,
    TECHNICAL_COLUMNS,
    TOMBSTONES,
    Label,
    Merge,
    Plan,
    ReadFirst,
)
from tallymark.model.table import Column
from tallymark.model.types import exact_timestamp, literals, quoted
from tallymark.spark.sessions import is_embedded

MOST_TO_BROADCAST = 500_000  # rows whose keys every worker can hold
_KIND, _WHAT, _OURS, _ROWS, _EXTRA = "_tm_kind", "_tm_what", "_tm_ours", "_tm_rows", "_tm_extra"
_IDLE = (Label.UNCHANGED, Label.SKIP)
_FOUND_BY_MATCH = (Label.UPDATE, Label.CLOSE, Label.DELETE)

# A map has no equality in Spark, its text has; with these options the text loses nothing.
_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class Relations:
    spark: SparkSession
    plan: Plan
    incoming: DataFrame
    current: DataFrame
    tombstones: DataFrame | None = None
    incoming_rows: int | None = None  # None if not counted
    current_view: str = "tm_current"  # one name for each meaning: Spark Connect resolves names late
    steps: dict[str, str] = field(default_factory=dict)  # text of a step → the view that holds it
    cache: ExitStack = field(default_factory=ExitStack)  # closed by whoever made the relations

    def run(self, query: exp.Query) -> DataFrame:
        read: dict[str, exp.Expr] = {name: exp.to_table(view) for name, view in self._views.items()}
        query = query.copy()
        steps = query.args.pop("with_", None)
        for step in steps.expressions if steps is not None else ():
            inner = _reading(step.this, read)
            shared = step.alias in self.read_several_times
            read[step.alias] = exp.to_table(self._step(step.alias, inner)) if shared else inner.subquery()
        return self.spark.sql(spark_text(_reading(query, read), self.plan))

    @cached_property
    def _views(self) -> dict[str, str]:
        self.incoming.createOrReplaceTempView("tm_incoming")
        self.current.createOrReplaceTempView(self.current_view)
        views = {INCOMING: "tm_incoming", CURRENT: self.current_view}
        if self.tombstones is not None:
            views[TOMBSTONES] = f"{self.current_view}_tombstones"
            self.tombstones.distinct().createOrReplaceTempView(views[TOMBSTONES])
        return views

    @cached_property
    def read_several_times(self) -> frozenset[str]:
        """Steps by their names, which mean the same in all queries of a plan."""
        assert isinstance(self.plan.shape, Merge)  # noqa: S101
        reads = Counter(table.name for table in self._label_query(self.plan.shape).find_all(exp.Table))
        return frozenset(name for name, number in reads.items() if number > 1)

    def _step(self, name: str, query: exp.Query) -> str:
        """Spark puts a step of a query into every place that reads it, so that a step of steps is planned
        and run many times over. As a cached view it is planned once, and shared by the queries of a plan.
        (What is read in one place only stays there: caching is not free.)"""
        text = spark_text(query, self.plan)
        if text not in self.steps:
            view = f"tm_{name}_{len(self.steps)}"
            self.kept(self.spark.sql(text)).createOrReplaceTempView(view)
            self.steps[text] = view
        return self.steps[text]

    def labels(self, merge: Merge) -> DataFrame:
        """In exactly the plan's types: a column that only some rows have may come as NULL of no type."""
        idle = f"{LABEL} IN ({literals(_IDLE)})"
        value = "{}" if self.is_small else f"IF({idle}, NULL, {{}})"  # of many rows, only a few are written
        written = [_cast(value.format(quoted(column.name)), column) for column in self.plan.columns]
        return self.kept(self.run(self._label_query(merge)).selectExpr(*written, LABEL, FROM_BATCH))

    def _label_query(self, merge: Merge) -> exp.Query:
        return self.plan.hints.full_join or merge.labels

    def kept(self, frame: DataFrame) -> DataFrame:
        """Computed once, by a checkpoint or the cache."""
        if keeps_rows(self.spark, self.incoming_rows):
            return frame.localCheckpoint(eager=False)
        self.cache.callback(_free, frame.persist())
        return frame

    @property
    def is_small(self) -> bool:
        return self.incoming_rows is not None and self.incoming_rows <= MOST_TO_BROADCAST


def spark_text(query: exp.Query, plan: Plan, *, pretty: bool = False) -> str:
    as_of: exp.Expr = exp.maybe_parse(exact_timestamp(plan.as_of), dialect="spark")
    return render(query, "spark", as_of=as_of, comparable=_comparable, pretty=pretty)


def _comparable(value: exp.Expr, spark_type: str) -> exp.Expr:
    if "map<" not in spark_type or isinstance(value, exp.Null):
        return value
    if spark_type.startswith("map<") and spark_type.count("map<") == 1:  # entries have no order of their own
        value = exp.Anonymous(
            this="ARRAY_SORT", expressions=[exp.Anonymous(this="MAP_ENTRIES", expressions=[value])]
        )
    options = [exp.Literal.string(text) for pair in _JSON_OPTIONS.items() for text in pair]
    return exp.Anonymous(this="TO_JSON", expressions=[value, exp.Anonymous(this="MAP", expressions=options)])


def _reading(query: exp.Query, relations: dict[str, exp.Expr]) -> exp.Query:
    mine = query.copy()
    for table in list(mine.find_all(exp.Table)):
        if table.name in relations and not table.db:
            table.replace(exp.alias_(relations[table.name], table.alias or table.name, table=True))
    return mine


def given_rows(plan: Plan, incoming: DataFrame) -> DataFrame:
    """The batch under the table's names and in its types."""
    by_name = {name.casefold(): name for name in incoming.columns}
    given = [_cast(quoted(by_name[column.name.casefold()]), column) for column in plan.given]
    return incoming.selectExpr(*given, *(name for name in TECHNICAL_COLUMNS if name in by_name))


def written_rows(columns: Iterable[Column], rows: DataFrame) -> DataFrame:
    """These columns of the rows, in this order; what the rows lack is NULL."""
    by_name = {name.casefold(): name for name in rows.columns if name not in TECHNICAL_COLUMNS}
    selected = []
    for column in columns:
        source = by_name.get(column.name.casefold())
        selected.append(_cast("NULL" if source is None else quoted(source), column))
    return rows.selectExpr(*selected)


def _cast(value: str, column: Column) -> str:
    return f"CAST({value} AS {column.type}) AS {quoted(column.name)}"


def same_match(left: str, right: str, columns: tuple[str, ...]) -> SparkColumn:
    """Null-safe, of two aliased frames."""
    return F.expr(" AND ".join(f"{left}.{quoted(c)} <=> {right}.{quoted(c)}" for c in columns))


def keeps_rows(spark: SparkSession, incoming_rows: int | None) -> bool:
    """Whether what a load computes is checkpointed, which cuts its lineage. A cached query would be planned
    again as soon as a table that it reads is written, by this very load. Not for large batches, which do not
    fit the heap, and not on a cluster, where a lost worker takes the rows with it and the query is needed to
    compute them again."""
    return incoming_rows is not None and incoming_rows <= MOST_TO_BROADCAST and is_embedded(spark)


def _free(frame: DataFrame) -> None:
    with suppress(Exception):  # after a commit, failing to free memory must not look like a failed load
        frame.unpersist()


@dataclass(frozen=True)
class LabelCounts:
    """All counts together take one Spark job."""

    total: int
    table_rows: int
    by_label: dict[str, int] = field(default_factory=dict)
    labelled: int = 0  # labels of rows that the batch brought
    null_matches: int = 0  # labels of table rows that a plain `=` would not find
    duplicate_keys: int = 0
    removed: int = 0
    new_tombstones: int = 0

    def of(self, *labels: Label) -> int:
        return sum(self.by_label.get(label, 0) for label in labels)


def count_rows(
    relations: Relations, rows: DataFrame, *, count_table: bool, removed: DataFrame | None
) -> LabelCounts:
    """Of a plan without labels."""
    counted = [_line("total", rows), *([_line("table", relations.current)] if count_table else [])]
    if removed is not None:
        counted.append(_line("removed", removed))
    return _collected(counted)


def count_labels(
    relations: Relations,
    merge: Merge,
    rows: DataFrame,
    new_tombstones: DataFrame | None,
    *,
    count_table: bool,
    find_duplicates: bool,
    removed: DataFrame | None = None,
) -> LabelCounts:
    counted = [_label_lines(rows, merge.match)]
    if relations.incoming_rows is None:
        counted.append(_line("total", relations.incoming))
    if removed is not None:
        counted.append(_line("removed", removed))
    if count_table:
        counted.append(_line("table", relations.current))
    if find_duplicates:
        counted.append(_line("duplicates", relations.run(merge.duplicates.keys)))
    if new_tombstones is not None:
        counted.append(_line("tombstones", new_tombstones))
    seen = _collected(counted)
    return seen if relations.incoming_rows is None else replace(seen, total=relations.incoming_rows)


def duplicate_rows(keys: DataFrame) -> tuple[int, int]:
    """How many matches occur several times, and how many rows of the table they are."""
    row = keys.selectExpr("count(*) AS `keys`", f"sum({COPIES}) AS `rows`").collect()[0]
    return int(row["keys"]), int(row["rows"] or 0)


def _label_lines(rows: DataFrame, match: tuple[str, ...]) -> DataFrame:
    unmatchable = " OR ".join(f"{quoted(column)} IS NULL" for column in match)
    found_by_match = f"{LABEL} IN ({literals(_FOUND_BY_MATCH)})"
    counted = rows.groupBy(LABEL, FROM_BATCH).agg(
        F.expr(f"count(*) AS {_ROWS}"),
        F.expr(f"count_if(({unmatchable}) AND {found_by_match}) AS {_EXTRA}"),
    )
    return counted.selectExpr(
        f"'label' AS {_KIND}", f"{LABEL} AS {_WHAT}", f"{FROM_BATCH} AS {_OURS}", _ROWS, _EXTRA
    )


def _line(kind: str, rows: DataFrame) -> DataFrame:
    return rows.selectExpr(
        f"'{kind}' AS {_KIND}",
        f"'' AS {_WHAT}",
        f"false AS {_OURS}",
        f"count(*) AS {_ROWS}",
        f"0L AS {_EXTRA}",
    )


def _collected(counted: list[DataFrame]) -> LabelCounts:
    lines = reduce(DataFrame.unionAll, counted).collect()
    labels = [line for line in lines if line[_KIND] == "label"]
    by_label: dict[str, int] = {}
    for line in labels:
        by_label[line[_WHAT]] = by_label.get(line[_WHAT], 0) + line[_ROWS]

    def rows_of(kind: str) -> int:
        return sum(line[_ROWS] for line in lines if line[_KIND] == kind)

    return LabelCounts(
        total=rows_of("total"),
        table_rows=rows_of("table"),
        by_label=by_label,
        labelled=sum(line[_ROWS] for line in labels if line[_OURS]),
        null_matches=sum(line[_EXTRA] for line in labels),
        duplicate_keys=rows_of("duplicates"),
        removed=rows_of("removed"),
        new_tombstones=rows_of("tombstones"),
    )


_LOW, _HIGH, _UNDECIDED = "_tm_low", "_tm_high", "_tm_undecided"


def pruned(relations: Relations, merge: Merge, *, large_table: bool) -> Relations:
    hints = relations.plan.hints
    if not hints.batch_keys or not relations.is_small or merge.rebuilds or relations.plan.creates_table:
        return relations
    ranges = key_range_filter(relations.plan)
    table = relations.current.where(ranges) if ranges else relations.current
    if large_table and hints.read_first is not None:
        rows = _decided_first(relations, hints.read_first, table)
    else:
        rows = _with_keys_of(relations.incoming, table, hints.batch_keys)
    if CURRENT in relations.read_several_times:
        rows = relations.kept(rows)
    tombstones = relations.tombstones
    if tombstones is not None:
        tombstones = _with_keys_of(relations.incoming, tombstones, hints.batch_keys)
    return replace(relations, current=rows, current_view="tm_pruned", tombstones=tombstones)


def key_range_filter(plan: Plan, alias: str = "") -> str:
    """A condition with the ranges of the batch's keys as literals, so that files of the table that cannot
    hold them are not opened. Empty if the ranges are unknown, or if rows with other keys count too."""
    keys = {name.casefold() for name in plan.hints.batch_keys}
    return " AND ".join(
        f"{alias}{quoted(found.column)} BETWEEN {found.low} AND {found.high}"
        for found in plan.hints.key_ranges
        if found.column.casefold() in keys
    )


def _with_keys_of(batch: DataFrame, table: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    names = [quoted(name) for name in keys]
    wanted = F.broadcast(batch.select(*names)).alias("k")
    return table.alias("c").join(wanted, F.expr(_same(names)), "left_semi")


def _decided_first(relations: Relations, first: ReadFirst, table: DataFrame) -> DataFrame:
    """A row is undecided if it may equal one of the batch: its value is between the least and the greatest
    that the batch has for its key, or one of them is NULL."""
    batch_keys = relations.plan.hints.batch_keys
    keys, deciding = [quoted(name) for name in batch_keys], quoted(first.deciding)
    values = [F.expr(f"min({deciding}) AS {_LOW}"), F.expr(f"max({deciding}) AS {_HIGH}")]
    batch = F.broadcast(relations.incoming.groupBy(*keys).agg(*values)).alias("k")
    read = {name.casefold(): quoted(name) for name in (*batch_keys, first.deciding, *first.needed)}
    seen = relations.kept(
        table.select(*read.values())
        .alias("c")
        .join(batch, F.expr(_same(keys)))
        .selectExpr(
            *(f"c.{name}" for name in read.values()),
            f"coalesce(c.{deciding} BETWEEN k.{_LOW} AND k.{_HIGH}, true) AS {_UNDECIDED}",
        )
    )
    assert relations.plan.current is not None  # noqa: S101
    decided = written_rows(relations.plan.current.columns, seen.where(f"NOT {_UNDECIDED}"))
    if not seen.agg(F.count_if(_UNDECIDED)).collect()[0][0]:
        return decided
    return decided.unionByName(_with_keys_of(seen.where(_UNDECIDED), table, batch_keys))


def _same(names: list[str]) -> str:
    return " AND ".join(f"c.{name} = k.{name}" for name in names)
