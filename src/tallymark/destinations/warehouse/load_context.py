"""What the steps of one load share: session, temporary tables, and the plan's queries in the engine's SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from sqlglot import exp

from tallymark.destinations.queries import Ranking, rank_by_window, render
from tallymark.destinations.warehouse.engine import (
    CatalogEntry,
    Engine,
    NativeColumn,
    RowAddress,
    Session,
    SqlDialect,
    TableName,
)
from tallymark.destinations.warehouse.transfer import staged_columns
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

# Temporary tables of a load. Only its session sees them.
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
class LoadContext:
    engine: Engine
    session: Session
    plan: Plan
    name: TableName
    entry: CatalogEntry | None  # the table as it is now; None if the load creates it
    _unique: dict[frozenset[str], bool] = field(default_factory=dict)  # answers of `is_unique`

    @property
    def sql(self) -> SqlDialect:
        return self.engine.dialect

    @property
    def table_sql(self) -> str:
        return self.sql.table(self.name)

    @property
    def is_first_load(self) -> bool:
        """Tombstones under this name then belong to an earlier table."""
        return self.plan.current is None or self.plan.current.version == "0"

    def native(self, column: Column) -> NativeColumn:
        """A column that the table has keeps the table's own type, so that a uuid or a varchar(20) is compared
        and written as such."""
        changed = {c.name.casefold() for c in self.plan.schema_changes if isinstance(c, ChangeType)}
        own = None if self.entry is None else self.entry.native(column.name)
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
        added = [NativeColumn(c.name, self.engine.native_type(c.type), c.type) for c in technical]
        return [*self.written, *added]

    @property
    def held(self) -> list[NativeColumn]:
        """Columns of the plan that the table already has."""
        return [] if self.entry is None else [c for c in self.written if self.entry.native(c.name)]

    @property
    def current(self) -> TableName:
        return TableName(None, NO_ROWS, NO_ROWS) if self.counts_as_empty else self.name

    @property
    def counts_as_empty(self) -> bool:
        return self.entry is None or self.plan.replaces_table

    @property
    def written_values(self) -> str:
        """The written columns of a row of the batch; columns that the batch lacks are NULL."""
        given = {column.name.casefold() for column in self.plan.given}
        return ", ".join(
            self.sql.quote(c.name) if c.name.casefold() in given else self.engine.coerced("NULL", c.native)
            for c in self.written
        )

    def query(
        self,
        query: exp.Query,
        *,
        survivors: exp.Query | None = None,
        current: TableName | None = None,
        address: RowAddress | None = None,
    ) -> str:
        """A query of the plan over the tables of this session. `current` replaces the table, and the query
        `survivors` replaces either. With `address`, rows of the table have theirs in the column ADDRESS."""
        relations: dict[str, exp.Expr] = {INCOMING: table_expression(TableName(None, STAGED, STAGED))}
        relations[CURRENT] = table_expression(current or self.current)
        if address is not None:
            own = exp.column(address.column).as_(ADDRESS, quoted=True)
            relations[CURRENT] = exp.select("*", own).from_(relations[CURRENT]).subquery()
        relations[TOMBSTONES] = table_expression(TableName(None, OLD_TOMBSTONES, OLD_TOMBSTONES))
        if survivors is not None:
            relations[CURRENT] = exp.Subquery(this=with_relations(survivors, relations))
        return self.rendered(with_relations(query, relations), ranking=self._rank)

    def _rank(self, rank: exp.Expr, columns: tuple[str, ...]) -> exp.Expr:
        return exp.Literal.number(1) if self.is_unique(columns) else rank

    def is_unique(self, columns: Sequence[str]) -> bool:
        """Whether no two rows of the staged batch share these columns. The database decides, once: texts
        that differ in trailing blanks, for example, may be equal to it."""
        wanted = frozenset(columns)
        if any(unique and known <= wanted for known, unique in self._unique.items()):
            return True
        if wanted not in self._unique:
            self._unique[wanted] = not self.session.fetch(self._shared(columns))
        return self._unique[wanted]

    def _shared(self, columns: Sequence[str]) -> str:
        """Returns a row if rows of the batch share these columns. PostgreSQL sorts to count distinct values:
        for numbers that takes half as long as hashing, for texts with a collation far longer."""
        names, staged = self.sql.quote_list(columns), self.sql.quote(STAGED)
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
            engine.dialect.sqlglot,
            as_of=engine.moment(self.plan.as_of),
            ordered=engine.ordered,
            comparable=engine.comparable,
            ranking=ranking,
            pretty=pretty,
        )

    def tombstone_table(self, tombstones: Tombstones) -> TableName:
        """The columns are part of the name: other columns mean other tombstones. The name is a digest, since
        the table's own name may be as long as the engine allows."""
        identity = "\n".join([self.name.key, *(f"{c.name.casefold()} {c.type}" for c in tombstones.columns)])
        return self.name.beside(f"_tallymark_tombstones_{sha256(identity.encode()).hexdigest()[:16]}")

    def tombstone_columns(self, tombstones: Tombstones) -> list[NativeColumn]:
        deleted_at = NativeColumn(DELETED_AT, self.engine.native_type("timestamp"), "timestamp")
        return [*(self.native(column) for column in tombstones.columns), deleted_at]


@dataclass(frozen=True)
class KeyMatch:
    """Rows of a table that share the columns `names` with rows of the temporary table `keys`.

    Keys that contain a NULL have a condition of their own: as part of the first one, the null-safe comparison
    would keep the engine from using a hash join."""

    load: LoadContext
    keys: str
    names: tuple[str, ...]
    where: str = "TRUE"  # which rows of `keys`; its alias is o

    def conditions(self, table: str) -> list[str]:
        """At most one of them is true for a row."""
        with_nulls = [self._with_nulls(table)] if self.has_nulls() else []
        return [self.without_nulls(table), *with_nulls]

    def without_nulls(self, table: str) -> str:
        return self.load.sql.key_in(table, self.names, self.keys, self.where)

    def has_nulls(self) -> bool:
        return bool(self.load.session.fetch(f"SELECT 1 {self._keys_with_nulls} LIMIT 1"))

    def _with_nulls(self, table: str) -> str:
        return f"EXISTS (SELECT 1 {self._keys_with_nulls} AND {self.load.sql.same('o', table, self.names)})"

    @property
    def _keys_with_nulls(self) -> str:
        sql = self.load.sql
        return f"FROM {sql.quote(self.keys)} AS o WHERE {self.where} AND ({sql.any_null('o', self.names)})"


def table_expression(name: TableName) -> exp.Table:
    return exp.table_(name.table, db=name.schema, catalog=name.catalog, quoted=True)


def with_relations(query: exp.Query, relations: dict[str, exp.Expr]) -> exp.Query:
    """A copy of the query with its relations replaced. Each keeps the alias that the query uses."""
    replaced = query.copy()
    for table in list(replaced.find_all(exp.Table)):
        if table.name in relations and not table.db and not _is_common_table(table):
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
            found = relations[table.name].copy()
            found.set("alias", alias.copy())
            table.replace(found)
    return replaced


def _is_common_table(table: exp.Table) -> bool:
    """Whether the name refers to a WITH clause around it."""
    node: exp.Expr | None = table.parent
    while node is not None:
        if isinstance(node, exp.Query) and any(cte.alias == table.name for cte in node.ctes):
            return True
        node = node.parent
    return False
