"""Computes the effect of a plan inside the database: refusals, labels, counts, duplicates in the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from tallymark.destinations.contract import DuplicatesFound
from tallymark.destinations.warehouse.engine import NativeColumn, RowAddress, TableName
from tallymark.destinations.warehouse.load_context import (
    ADDRESS,
    DELETED_AT,
    DUPLICATES,
    LABELS,
    NO_ROWS,
    OLD_TOMBSTONES,
    PRUNED,
    STAGED,
    SURVIVORS,
    KeyMatch,
    LoadContext,
)
from tallymark.errors import CountsDoNotBalance, PlanError, TiedRows
from tallymark.model.plan import (
    COPIES,
    FROM_BATCH,
    LABEL,
    Append,
    Label,
    Merge,
    Refusal,
    ReplaceSlices,
    ReplaceTable,
    Tombstones,
)
from tallymark.model.receipt import Counts
from tallymark.model.table import Column

_SHOWN_KEYS = 5


@dataclass(frozen=True)
class LoadEffect:
    counts: Counts
    table_rows: int
    duplicates: DuplicatesFound | None = None
    duplicated_rows: int = 0  # rows with a duplicated key: all are deleted, then one of each is inserted
    address: RowAddress | None = None  # if set, LABELS has the address of the row to update in ADDRESS


def compute_effect(load: LoadContext, total: int) -> LoadEffect:
    """Expects the batch, `total` rows, in STAGED. A Merge leaves its labels in LABELS."""
    match load.plan.shape:
        case Append():
            return LoadEffect(Counts(inserted=total, total=total), _rows_for_guard(load))
        case ReplaceTable():
            rows = _rows_in_table(load)
            return LoadEffect(Counts(inserted=total, deleted=rows, total=total), rows)
        case ReplaceSlices(columns=columns):
            deleted = _rows_in_slices(load, columns)
            return LoadEffect(Counts(inserted=total, deleted=deleted, total=total), _rows_for_guard(load))
        case Merge() as merge:
            return _merged(load, merge, total)


def _merged(load: LoadContext, merge: Merge, total: int) -> LoadEffect:
    if load.counts_as_empty:
        load.session.create_temporary(NO_ROWS, load.written)
    if merge.tombstones is not None:
        _read_tombstones(load, merge.tombstones)
    duplicates, duplicated_rows = _find_duplicates(load, merge) if merge.duplicates.whole_table else (None, 0)
    survivors = merge.duplicates.survivors if duplicates else None
    current = _pruned(load) if survivors is None else load.current
    seen = _label(load, merge, survivors, current)
    if seen.from_batch > total and duplicates is None:
        # A key that the table has twice matches twice.
        duplicates, duplicated_rows = _find_duplicates(load, merge)
        if duplicates is not None:
            survivors, current = merge.duplicates.survivors, load.current
            load.session.execute(f"DROP TABLE {load.sql.quote(LABELS)}")
            seen = _label(load, merge, survivors, current)
    _refuse(load, merge, seen, survivors, current)
    counts = seen.counts
    if counts.total != total:
        raise CountsDoNotBalance(
            f"{load.plan.table}: {total} rows came in, {counts.total} were labelled; nothing was written",
            facts={"total": total, "labelled": counts.total},
        )
    if duplicates is not None:
        counts = replace(counts, deleted=counts.deleted + duplicates.rows)
    if merge.rebuilds:
        counts = replace(counts, deleted=_rows_in_table(load))
    return LoadEffect(counts, _rows_for_guard(load), duplicates, duplicated_rows, seen.address)


def _pruned(load: LoadContext) -> TableName:
    """A copy of the rows with a key of the batch, where the engine would otherwise index the whole table."""
    keys = load.plan.hints.batch_keys
    if not load.engine.joins_by_index or not keys or load.entry is None or load.counts_as_empty:
        return load.current
    load.session.create_temporary(PRUNED, load.entry.columns)
    names = load.sql.quote_list([column.name for column in load.entry.columns])
    found = KeyMatch(load, STAGED, keys).without_nulls("t")
    load.session.execute(
        f"INSERT INTO {load.sql.quote(PRUNED)} ({names}) "
        f"SELECT {names} FROM {load.table_sql} AS t WHERE {found}"
    )
    return TableName(None, PRUNED, PRUNED)


@dataclass(frozen=True)
class _Labels:
    rows: dict[str, int]  # by label
    from_batch: int
    address: RowAddress | None

    @property
    def counts(self) -> Counts:
        return Counts(
            inserted=self.rows.get(Label.INSERT, 0),
            updated=self.rows.get(Label.UPDATE, 0),
            closed=self.rows.get(Label.CLOSE, 0),
            deleted=self.rows.get(Label.DELETE, 0),
            unchanged=self.rows.get(Label.UNCHANGED, 0),
            skipped=self.rows.get(Label.SKIP, 0),
            total=self.from_batch,
        )


def _label(load: LoadContext, merge: Merge, survivors: exp.Query | None, current: TableName) -> _Labels:
    address = _address(load) if survivors is None else None
    labels, columns = merge.labels, load.labelled
    if address is not None:
        labels = labels.select(exp.column(ADDRESS, table=load.plan.hints.updated_row, quoted=True))
        columns.append(NativeColumn(ADDRESS, address.native, "string"))
    query = load.query(labels, survivors=survivors, current=current, address=address)
    load.session.create_temporary_as(LABELS, columns, query)
    label = load.sql.quote(LABEL)
    rows = load.session.fetch(
        f"SELECT {label}, SUM(CASE WHEN {load.sql.quote(FROM_BATCH)} THEN 1 ELSE 0 END), COUNT(*) "
        f"FROM {load.sql.quote(LABELS)} GROUP BY {label}"
    )
    return _Labels(
        {str(label): int(str(number)) for label, _, number in rows},
        sum(int(str(from_batch)) for _, from_batch, _ in rows),
        address,
    )


def _address(load: LoadContext) -> RowAddress | None:
    if not load.plan.hints.updated_row or load.entry is None or load.counts_as_empty:
        return None
    return load.entry.address


def _find_duplicates(load: LoadContext, merge: Merge) -> tuple[DuplicatesFound | None, int]:
    """Leaves the duplicated keys in DUPLICATES and one row per key in SURVIVORS."""
    if load.counts_as_empty:
        return None, 0
    match = [load.native(_column(load, name)) for name in merge.match]
    copies = NativeColumn(COPIES, load.engine.native_type("bigint"), "bigint")
    names = load.sql.quote_list([*merge.match, COPIES])
    load.session.create_temporary(DUPLICATES, [*match, copies])
    found = load.session.execute(
        f"INSERT INTO {load.sql.quote(DUPLICATES)} ({names}) "
        f"SELECT {names} FROM ({load.query(merge.duplicates.keys)}) AS q"
    )
    if found == 0:
        return None, 0
    types = [column.spark for column in match]
    keys, duplicates = load.sql.quote_list(merge.match), load.sql.quote(DUPLICATES)
    shown = load.session.fetch_values(
        f"SELECT {keys} FROM {duplicates} ORDER BY 1 LIMIT {_SHOWN_KEYS}", types
    )
    sample = tuple(dict(zip(merge.match, row, strict=True)) for row in shown)
    rows = _count(load, f"SELECT SUM({load.sql.quote(COPIES)}) FROM {duplicates}")
    if not merge.duplicates.repair:
        raise PlanError(
            f"{load.plan.table}: the table holds several rows for one unique_key: "
            f"{found} keys in {rows} rows, such as {_listed(sample)}",
            hint="set `on_target_duplicates: repair`, or remove the duplicates from the table, or choose a "
            "unique_key that is unique in it",
            facts={"keys": list(sample), "rows": rows - found},
        )
    _keep_survivors(load, merge)
    return DuplicatesFound(rows - found, found, sample), rows


def _keep_survivors(load: LoadContext, merge: Merge) -> None:
    load.session.create_temporary(SURVIVORS, load.held)
    names = load.sql.quote_list([c.name for c in load.held])
    survivors = load.query(merge.duplicates.survivors)
    for condition in KeyMatch(load, DUPLICATES, merge.match).conditions("s"):
        load.session.execute(
            f"INSERT INTO {load.sql.quote(SURVIVORS)} ({names}) "
            f"SELECT {names} FROM ({survivors}) AS s WHERE {condition}"
        )


def _refuse(
    load: LoadContext, merge: Merge, seen: _Labels, survivors: exp.Query | None, current: TableName
) -> None:
    for refusal in merge.refusals:
        if _is_ruled_out(load, refusal, seen):
            continue
        names = [selected.alias_or_name for selected in refusal.found.selects]
        types = [_column(load, name).type for name in names]
        rows = load.query(refusal.found, survivors=survivors, current=current)
        query = f"SELECT * FROM ({rows}) AS q LIMIT {_SHOWN_KEYS}"
        found = [dict(zip(names, row, strict=True)) for row in load.session.fetch_values(query, types)]
        if found:
            raise TiedRows(
                f"{load.plan.table}: {refusal.message}: {_listed(found)}",
                hint=refusal.hint,
                facts={"keys": found},
            )


def _is_ruled_out(load: LoadContext, refusal: Refusal, seen: _Labels) -> bool:
    """A cheap check whether the refusal cannot apply: comparing a few columns costs far less than comparing
    whole rows, and most batches have no such rows."""
    if refusal.shows_as is not None and not seen.rows.get(refusal.shows_as):
        return True
    return bool(refusal.among) and load.is_unique(refusal.among)


def _read_tombstones(load: LoadContext, tombstones: Tombstones) -> None:
    """Copies the tombstones that have not expired into a temporary table."""
    columns = [load.native(column) for column in tombstones.columns]
    load.session.create_temporary(OLD_TOMBSTONES, columns)
    table = load.tombstone_table(tombstones)
    if load.is_first_load or load.session.describe(table) is None:
        return
    names = load.sql.quote_list([column.name for column in columns])
    since = load.engine.moment(tombstones.forget_before).sql(dialect=load.sql.sqlglot)
    load.session.execute(
        f"INSERT INTO {load.sql.quote(OLD_TOMBSTONES)} ({names}) SELECT {names} FROM {load.sql.table(table)} "
        f"WHERE {load.sql.quote(DELETED_AT)} >= {since}"
    )


def _rows_in_slices(load: LoadContext, columns: tuple[str, ...]) -> int:
    if load.entry is None:
        return 0
    absent = [name for name in columns if load.entry.native(name) is None]
    table = load.table_sql
    if absent:  # the load adds such a column, NULL in every row of the table
        natives = [load.native(_column(load, name)) for name in absent]
        added = ", ".join(
            f"{load.engine.coerced('NULL', c.native)} AS {load.sql.quote(c.name)}" for c in natives
        )
        table = f"(SELECT t.*, {added} FROM {table} AS t)"
    conditions = KeyMatch(load, STAGED, columns).conditions("t")
    return sum(_count(load, f"SELECT COUNT(*) FROM {table} AS t WHERE {c}") for c in conditions)


def _rows_for_guard(load: LoadContext) -> int:
    """Counting the table takes time, so it is done only for the delete guard."""
    return 0 if load.plan.max_delete_fraction is None else _rows_in_table(load)


def _rows_in_table(load: LoadContext) -> int:
    return 0 if load.entry is None else _count(load, f"SELECT COUNT(*) FROM {load.table_sql}")


def _column(load: LoadContext, name: str) -> Column:
    known = (*load.plan.columns, *load.plan.given)
    found = next((column for column in known if column.name.casefold() == name.casefold()), None)
    return found or Column(name, "bigint" if name == COPIES else "string")


def _count(load: LoadContext, sql: str) -> int:
    return int(str(load.session.fetch(sql)[0][0]))


def _listed(rows: tuple[dict[str, object], ...] | list[dict[str, object]]) -> str:
    return "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in rows)
