"""Computes the effect of a plan inside the engine: refusals, labels, counts, duplicates of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from tallymark.destinations.contract import DuplicatesFound
from tallymark.destinations.warehouse.engine import Name, NativeColumn, RowAddress, quoted, quoted_list
from tallymark.destinations.warehouse.work import (
    ADDRESS,
    DELETED_AT,
    DUPLICATES,
    LABELS,
    NO_ROWS,
    OLD_TOMBSTONES,
    PRUNED,
    STAGED,
    SURVIVORS,
    Matching,
    Work,
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
class Effect:
    counts: Counts
    table_rows: int
    duplicates: DuplicatesFound | None = None
    duplicated_rows: int = 0  # rows of the table that are taken out, for one of each to come back
    address: RowAddress | None = None  # LABELS has, as ADDRESS, that of the row to update


def effect_of(work: Work, total: int) -> Effect:
    """Expects the batch of `total` rows in STAGED. For a Merge, leaves the labels in LABELS."""
    match work.plan.shape:
        case Append():
            return Effect(Counts(inserted=total, total=total), _rows_for_guard(work))
        case ReplaceTable():
            rows = _rows_in_table(work)
            return Effect(Counts(inserted=total, deleted=rows, total=total), rows)
        case ReplaceSlices(columns=columns):
            deleted = _rows_in_slices(work, columns)
            return Effect(Counts(inserted=total, deleted=deleted, total=total), _rows_for_guard(work))
        case Merge() as merge:
            return _merged(work, merge, total)


def _merged(work: Work, merge: Merge, total: int) -> Effect:
    if work.counts_as_empty:
        work.session.temporary(NO_ROWS, work.written)
    if merge.tombstones is not None:
        _offer_tombstones(work, merge.tombstones)
    duplicates, taken = _find_duplicates(work, merge) if merge.duplicates.whole_table else (None, 0)
    survivors = merge.duplicates.survivors if duplicates else None
    current = _pruned(work) if survivors is None else work.current
    seen = _label(work, merge, survivors, current)
    if seen.from_batch > total and duplicates is None:
        # A key that the table holds twice matches twice.
        duplicates, taken = _find_duplicates(work, merge)
        if duplicates is not None:
            survivors, current = merge.duplicates.survivors, work.current
            work.session.execute(f"DROP TABLE {quoted(LABELS)}")
            seen = _label(work, merge, survivors, current)
    _refuse(work, merge, seen, survivors, current)
    counts = seen.counts
    if counts.total != total:
        raise CountsDoNotBalance(
            f"{work.plan.table}: {total} rows came in, {counts.total} were labelled; nothing was written",
            facts={"total": total, "labelled": counts.total},
        )
    if duplicates is not None:
        counts = replace(counts, deleted=counts.deleted + duplicates.rows)
    if merge.rebuilds:
        counts = replace(counts, deleted=_rows_in_table(work))
    return Effect(counts, _rows_for_guard(work), duplicates, taken, seen.address)


def _pruned(work: Work) -> Name:
    """A copy of the rows that the queries read, where that saves the engine an index of all rows."""
    keys = work.plan.hints.batch_keys
    if not work.engine.joins_by_index or not keys or work.relation is None or work.counts_as_empty:
        return work.current
    work.session.temporary(PRUNED, work.relation.columns)
    names = quoted_list([column.name for column in work.relation.columns])
    found = Matching(work, STAGED, keys).ordinary("t")
    work.session.execute(
        f"INSERT INTO {quoted(PRUNED)} ({names}) SELECT {names} FROM {work.name.sql} AS t WHERE {found}"
    )
    return Name(None, PRUNED, PRUNED)


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


def _label(work: Work, merge: Merge, survivors: exp.Query | None, current: Name) -> _Labels:
    address = _address(work) if survivors is None else None
    labels, columns = merge.labels, work.labelled
    if address is not None:
        labels = labels.select(exp.column(ADDRESS, table=work.plan.hints.updated_row, quoted=True))
        columns.append(NativeColumn(ADDRESS, address.native, "string"))
    query = work.query(labels, survivors=survivors, current=current, address=address)
    work.session.temporary_of(LABELS, columns, query)
    rows = work.session.fetch(
        f"SELECT {quoted(LABEL)}, SUM(CASE WHEN {quoted(FROM_BATCH)} THEN 1 ELSE 0 END), COUNT(*) "
        f"FROM {quoted(LABELS)} GROUP BY {quoted(LABEL)}"
    )
    return _Labels(
        {str(label): int(str(number)) for label, _, number in rows},
        sum(int(str(from_batch)) for _, from_batch, _ in rows),
        address,
    )


def _address(work: Work) -> RowAddress | None:
    if not work.plan.hints.updated_row or work.relation is None or work.counts_as_empty:
        return None
    return work.relation.address


def _find_duplicates(work: Work, merge: Merge) -> tuple[DuplicatesFound | None, int]:
    """Leaves the keys in DUPLICATES and one row for each in SURVIVORS."""
    if work.counts_as_empty:
        return None, 0
    match = [work.native(_of(work, name)) for name in merge.match]
    copies = NativeColumn(COPIES, work.engine.native_type("bigint"), "bigint")
    names = quoted_list([*merge.match, COPIES])
    work.session.temporary(DUPLICATES, [*match, copies])
    found = work.session.execute(
        f"INSERT INTO {quoted(DUPLICATES)} ({names}) "
        f"SELECT {names} FROM ({work.query(merge.duplicates.keys)}) AS q"
    )
    if found == 0:
        return None, 0
    types = [column.spark for column in match]
    shown = f"SELECT {quoted_list(merge.match)} FROM {quoted(DUPLICATES)} ORDER BY 1 LIMIT {_SHOWN_KEYS}"
    sample = tuple(dict(zip(merge.match, row, strict=True)) for row in work.session.values(shown, types))
    taken = _count(work, f"SELECT SUM({quoted(COPIES)}) FROM {quoted(DUPLICATES)}")
    if not merge.duplicates.repair:
        raise PlanError(
            f"{work.plan.table}: the table holds several rows for one unique_key: "
            f"{found} keys in {taken} rows, such as {_listed(sample)}",
            hint="set `on_target_duplicates: repair`, or remove the duplicates from the table, or choose a "
            "unique_key that is unique in it",
            facts={"keys": list(sample), "rows": taken - found},
        )
    _keep_survivors(work, merge)
    return DuplicatesFound(taken - found, found, sample), taken


def _keep_survivors(work: Work, merge: Merge) -> None:
    work.session.temporary(SURVIVORS, work.held)
    names = quoted_list([c.name for c in work.held])
    survivors = work.query(merge.duplicates.survivors)
    for condition in Matching(work, DUPLICATES, merge.match).conditions("s"):
        work.session.execute(
            f"INSERT INTO {quoted(SURVIVORS)} ({names}) "
            f"SELECT {names} FROM ({survivors}) AS s WHERE {condition}"
        )


def _refuse(work: Work, merge: Merge, seen: _Labels, survivors: exp.Query | None, current: Name) -> None:
    for refusal in merge.refusals:
        if _has_no_reason(work, refusal, seen):
            continue
        names = [selected.alias_or_name for selected in refusal.found.selects]
        types = [_of(work, name).type for name in names]
        rows = work.query(refusal.found, survivors=survivors, current=current)
        query = f"SELECT * FROM ({rows}) AS q LIMIT {_SHOWN_KEYS}"
        found = [dict(zip(names, row, strict=True)) for row in work.session.values(query, types)]
        if found:
            raise TiedRows(
                f"{work.plan.table}: {refusal.message}: {_listed(found)}",
                hint=refusal.hint,
                facts={"keys": found},
            )


def _has_no_reason(work: Work, refusal: Refusal, seen: _Labels) -> bool:
    """Looking for rows that share a few columns is far cheaper than comparing whole rows, and in most
    batches there are none."""
    if refusal.shows_as is not None and not seen.rows.get(refusal.shows_as):
        return True
    return bool(refusal.among) and work.is_unique(refusal.among)


def _offer_tombstones(work: Work, tombstones: Tombstones) -> None:
    """The tombstones that still count, as a temporary table."""
    columns = [work.native(column) for column in tombstones.columns]
    work.session.temporary(OLD_TOMBSTONES, columns)
    table = work.tombstone_table(tombstones)
    if work.is_first_load or work.session.relation(table) is None:
        return
    names = quoted_list([column.name for column in columns])
    since = work.engine.moment(tombstones.forget_before).sql(dialect=work.engine.dialect)
    work.session.execute(
        f"INSERT INTO {quoted(OLD_TOMBSTONES)} ({names}) SELECT {names} FROM {table.sql} "
        f"WHERE {quoted(DELETED_AT)} >= {since}"
    )


def _rows_in_slices(work: Work, columns: tuple[str, ...]) -> int:
    if work.relation is None:
        return 0
    absent = [name for name in columns if work.relation.native(name) is None]
    table = work.name.sql
    if absent:  # such a column is NULL in every row of the table, once the load has added it
        added = ", ".join(
            f"{work.engine.coerced('NULL', work.native(_of(work, name)).native)} AS {quoted(name)}"
            for name in absent
        )
        table = f"(SELECT t.*, {added} FROM {table} AS t)"
    conditions = Matching(work, STAGED, columns).conditions("t")
    return sum(_count(work, f"SELECT COUNT(*) FROM {table} AS t WHERE {c}") for c in conditions)


def _rows_for_guard(work: Work) -> int:
    """Counting the table is not free: only a guarded plan pays for it."""
    return 0 if work.plan.max_delete_fraction is None else _rows_in_table(work)


def _rows_in_table(work: Work) -> int:
    return 0 if work.relation is None else _count(work, f"SELECT COUNT(*) FROM {work.name.sql}")


def _of(work: Work, name: str) -> Column:
    known = (*work.plan.columns, *work.plan.given)
    found = next((column for column in known if column.name.casefold() == name.casefold()), None)
    return found or Column(name, "bigint" if name == COPIES else "string")


def _count(work: Work, sql: str) -> int:
    return int(str(work.session.fetch(sql)[0][0]))


def _listed(rows: tuple[dict[str, object], ...] | list[dict[str, object]]) -> str:
    return "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in rows)
