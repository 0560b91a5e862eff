"""One load in one session: its temporary tables, and the plan's queries in the engine's SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from sqlglot import exp

from tallymark.destinations.queries import Ranking, rank_by_window, render
from tallymark.destinations.warehouse.engine import (
    Engine,
    Name,
    NativeColumn,
    Relation,
    RowAddress,
    Session,
    quoted,
    quoted_list,
)
from tallymark.destinations.warehouse.stage import staged_columns
from tallymark.model.plan import (
    CURRENT,
    FROM_BATCH,
    INCOMING,
    LABEL,
    TOMBSTONES,
    ChangeType,
    Plan,
    Tombstones,
)
from tallymark.model.table import Column

# Temporary tables of a load. Nobody else sees them.
STAGED = "_tm_incoming"
LABELS = "_tm_labels"
NO_ROWS = "_tm_no_rows"
PRUNED = "_tm_pruned"
OLD_TOMBSTONES = "_tm_tombstones"
DUPLICATES = "_tm_duplicates"
SURVIVORS = "_tm_survivors"

DELETED_AT = "_tm_as_of"
ADDRESS = "_tm_address"


@dataclass
class Work:
    engine: Engine
    session: Session
    plan: Plan
    name: Name
    relation: Relation | None  # the table as it is; None: the load creates it
    _unique: dict[frozenset[str], bool] = field(default_factory=dict)  # what `is_unique` has found

    @property
    def is_first_load(self) -> bool:
        """Tombstones under this name belong to an earlier table."""
        return self.plan.current is None or self.plan.current.version == "0"

    def native(self, column: Column) -> NativeColumn:
        """A column that the table has keeps the table's own type, so that a uuid or a varchar(20) is compared
        and written as what it is."""
        changed = {c.name.casefold() for c in self.plan.schema_changes if isinstance(c, ChangeType)}
        own = None if self.relation is None else self.relation.native(column.name)
        if own is None or (column.name.casefold() in changed and self.plan.replaces_table):
            own = self.engine.native_type(column.type)
        return NativeColumn(column.name, own, column.type, column.nullable)

    @property
    def written(self) -> list[NativeColumn]:
        return [self.native(column) for column in self.plan.columns]

    @property
    def staged(self) -> list[NativeColumn]:
        return [self.native(column) for column in staged_columns(self.plan)]

    @property
    def labelled(self) -> list[NativeColumn]:
        technical = (Column(LABEL, "string"), Column(FROM_BATCH, "boolean"))
        made = [NativeColumn(c.name, self.engine.native_type(c.type), c.type) for c in technical]
        return [*self.written, *made]

    @property
    def held(self) -> list[NativeColumn]:
        """Columns of the plan that the table has already."""
        return [] if self.relation is None else [c for c in self.written if self.relation.native(c.name)]

    @property
    def current(self) -> Name:
        return Name(None, NO_ROWS, NO_ROWS) if self.counts_as_empty else self.name

    @property
    def counts_as_empty(self) -> bool:
        return self.relation is None or self.plan.replaces_table

    @property
    def written_values(self) -> str:
        """The written columns of a row of the batch; what it lacks is NULL."""
        given = {column.name.casefold() for column in self.plan.given}
        return ", ".join(
            quoted(c.name) if c.name.casefold() in given else self.engine.coerced("NULL", c.native)
            for c in self.written
        )

    def query(
        self,
        query: exp.Query,
        *,
        survivors: exp.Query | None = None,
        current: Name | None = None,
        address: RowAddress | None = None,
    ) -> str:
        """A query of the plan over this session's tables. `current` may stand for the table; with
        `survivors`, these do. With `address`, the table's rows have theirs as ADDRESS."""
        relations: dict[str, exp.Expr] = {INCOMING: table_of(Name(None, STAGED, STAGED))}
        relations[CURRENT] = table_of(current or self.current)
        if address is not None:
            own = exp.column(address.column).as_(ADDRESS, quoted=True)
            relations[CURRENT] = exp.select("*", own).from_(relations[CURRENT]).subquery()
        relations[TOMBSTONES] = table_of(Name(None, OLD_TOMBSTONES, OLD_TOMBSTONES))
        if survivors is not None:
            relations[CURRENT] = exp.Subquery(this=reading(survivors, relations))
        return self.rendered(reading(query, relations), ranking=self._rank)

    def _rank(self, rank: exp.Expr, columns: tuple[str, ...]) -> exp.Expr:
        return exp.Literal.number(1) if self.is_unique(columns) else rank

    def is_unique(self, columns: Sequence[str]) -> bool:
        """Whether no two rows of the staged batch share these columns. The database is asked, once: texts
        that differ, such as by blanks at their end, may be the same to it."""
        wanted = frozenset(columns)
        if any(unique and known <= wanted for known, unique in self._unique.items()):
            return True
        if wanted not in self._unique:
            self._unique[wanted] = not self.session.fetch(self._shared(columns))
        return self._unique[wanted]

    def _shared(self, columns: Sequence[str]) -> str:
        """Finds a row if rows of the batch share these columns. PostgreSQL sorts to count distinct values:
        of numbers that takes half as long as to hash them, of texts in the order of a language far longer."""
        names, staged = quoted_list(columns), quoted(STAGED)
        types = [column.spark for column in self.staged if column.name in columns]
        if len(columns) == 1 and types != ["string"]:
            counts = f"SELECT COUNT(*) AS total, COUNT(DISTINCT {names}) AS distinct_ones FROM {staged}"
            return f"SELECT 1 FROM ({counts}) AS q WHERE distinct_ones < total"
        return f"SELECT {names} FROM {staged} GROUP BY {names} HAVING COUNT(*) > 1 LIMIT 1"

    def shown(self, query: exp.Query) -> str:
        """A query of the plan for people: over `incoming` and `current`, as the plan has it."""
        return self.rendered(query, pretty=True)

    def rendered(self, query: exp.Query, *, ranking: Ranking = rank_by_window, pretty: bool = False) -> str:
        engine = self.engine
        return render(
            query,
            engine.dialect,
            as_of=engine.moment(self.plan.as_of),
            ordered=engine.ordered,
            comparable=engine.comparable,
            ranking=ranking,
            pretty=pretty,
        )

    def same(self, left: str, right: str, names: Sequence[str]) -> str:
        return " AND ".join(
            f"{left}.{quoted(name)} {self.engine.null_safe} {right}.{quoted(name)}" for name in names
        )

    def tombstone_table(self, tombstones: Tombstones) -> Name:
        """Other columns mean other tombstones, so the columns are part of the name. It is short, since a
        table's own name may be as long as the engine allows."""
        identity = "\n".join([self.name.key, *(f"{c.name.casefold()} {c.type}" for c in tombstones.columns)])
        return self.name.beside(f"_tallymark_tombstones_{sha256(identity.encode()).hexdigest()[:16]}")

    def tombstone_columns(self, tombstones: Tombstones) -> list[NativeColumn]:
        moment = NativeColumn(DELETED_AT, self.engine.native_type("timestamp"), "timestamp")
        return [*(self.native(column) for column in tombstones.columns), moment]


@dataclass(frozen=True)
class Matching:
    """Rows of a table that share `names` with rows of `other`.

    Rows with a NULL among these are found by a condition of their own: in the ordinary one it would keep the
    engine from hashing."""

    work: Work
    other: str  # a temporary table
    names: tuple[str, ...]
    where: str = "TRUE"  # which rows of `other`; its alias is o

    def ordinary(self, table: str) -> str:
        filled = " AND ".join(f"o.{quoted(name)} IS NOT NULL" for name in self.names)
        values = quoted_list(self.names, "o")
        return (
            f"({quoted_list(self.names, table)}) IN "
            f"(SELECT {values} FROM {quoted(self.other)} AS o WHERE {self.where} AND {filled})"
        )

    def with_nulls(self, table: str) -> str:
        return (
            f"EXISTS (SELECT 1 FROM {quoted(self.other)} AS o WHERE {self.where} AND ({self._some_null}) "
            f"AND {self.work.same('o', table, self.names)})"
        )

    def has_nulls(self) -> bool:
        sql = f"SELECT 1 FROM {quoted(self.other)} AS o WHERE {self.where} AND ({self._some_null}) LIMIT 1"
        return bool(self.work.session.fetch(sql))

    def conditions(self, table: str) -> list[str]:
        return [self.ordinary(table), *([self.with_nulls(table)] if self.has_nulls() else [])]

    @property
    def _some_null(self) -> str:
        return " OR ".join(f"o.{quoted(name)} IS NULL" for name in self.names)


def table_of(name: Name) -> exp.Table:
    return exp.table_(name.table, db=name.schema, catalog=name.catalog, quoted=True)


def reading(query: exp.Query, relations: dict[str, exp.Expr]) -> exp.Query:
    """The query with its relations replaced; each keeps the name by which the query calls it."""
    mine = query.copy()
    for table in list(mine.find_all(exp.Table)):
        if table.name in relations and not table.db and not _is_named_here(table):
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
            found = relations[table.name].copy()
            found.set("alias", alias.copy())
            table.replace(found)
    return mine


def _is_named_here(table: exp.Table) -> bool:
    """Whether a WITH around it gives the name another meaning."""
    node: exp.Expr | None = table.parent
    while node is not None:
        if isinstance(node, exp.Query) and any(cte.alias == table.name for cte in node.ctes):
            return True
        node = node.parent
    return False
