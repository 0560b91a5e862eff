"""A prepared load in an open session, and its commit.

The phases of `commit`, all in the transaction that computed the labels:

1. Compare the fence: stop if a newer writer has used the sequence, or if a content is already applied.
2. Create schema and table, or add new columns.
3. Repair duplicates: delete all rows of a duplicated key, insert one of each again.
4. Delete, update, insert. The row counts of the driver must equal those of the labels.
5. Write tombstones.
6. Write markers and fence.
7. COMMIT.

`check` of a load that is to be committed runs the DML: it does phases 2 to 4, so that gates query the table
as it will be, and `commit` does not repeat them. Nothing is durable before phase 7. `check` of a plan changes
nothing: gates query a temporary view instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tallymark.destinations.contract import Commit, DuplicatesFound, SampleRow, WriteMethod
from tallymark.destinations.warehouse.gates import GateQueries, view_of_rows_after
from tallymark.destinations.warehouse.labels import LoadEffect
from tallymark.destinations.warehouse.load_context import (
    ADDRESS,
    DELETED_AT,
    DUPLICATES,
    LABELS,
    STAGED,
    SURVIVORS,
    KeyMatch,
    LoadContext,
)
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.errors import CountsDoNotBalance
from tallymark.model.gate import Gate, GateResult
from tallymark.model.plan import (
    INCOMING,
    LABEL,
    AddColumn,
    Append,
    ChangeType,
    Label,
    Merge,
    Plan,
    ReplaceSlices,
    ReplaceTable,
    Tombstones,
)
from tallymark.model.receipt import Counts, Marker

_CHANGING = (Label.INSERT, Label.UPDATE, Label.CLOSE, Label.DELETE)
_WRITTEN = (Label.INSERT, Label.UPDATE, Label.CLOSE)
_REPLACED = (Label.UPDATE, Label.CLOSE, Label.DELETE)
_APPEND = WriteMethod("append", "every row is added")
_OVERWRITE = WriteMethod("overwrite", "the whole table is replaced")
_REPLACE = WriteMethod("replace", "whole slices of the table are replaced")
_SKIP = WriteMethod("skip", "no row changes, so only the marker is written")
_MERGE = WriteMethod("merge", "rows are deleted, updated and inserted by their labels")


@dataclass
class WarehouseLoad:
    """A prepared load (`contract.PreparedLoad`)."""

    load: LoadContext
    effect: LoadEffect
    for_commit: bool = True
    _is_applied: bool = False  # phases 2 to 4 are done

    @property
    def counts(self) -> Counts:
        return self.effect.counts

    @property
    def table_rows(self) -> int:
        return self.effect.table_rows

    @property
    def duplicates(self) -> DuplicatesFound | None:
        return self.effect.duplicates

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    @property
    def method(self) -> WriteMethod:
        return _method(self.load.plan, self.counts)

    def sql(self) -> str:
        match self.load.plan.shape:
            case Merge(labels=labels):
                return self.load.shown(labels)
            case Append() | ReplaceTable() | ReplaceSlices():
                return f"SELECT {self.load.written_values} FROM {INCOMING}"

    def samples(self, limit: int) -> list[SampleRow]:
        match self.load.plan.shape:
            case Merge(match=match):
                return [sample for label in _CHANGING for sample in self._merged(label, match, limit)]
            case Append() | ReplaceTable() | ReplaceSlices():
                staged = self.load.sql.quote(STAGED)
                query = f"SELECT {self.load.written_values} FROM {staged} LIMIT {limit}"
                return [SampleRow(Label.INSERT, None, row) for row in self._rows(query)]

    def check(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        if self.for_commit:
            self._take_effect()
            return GateQueries(self.load, self.load.name).results(gates)
        relation = view_of_rows_after(self.load, _rows_after(self.load, self.effect))
        return GateQueries(self.load, relation).results(gates)

    def commit(self, marker: Marker) -> Commit:
        load = self.load
        if load.entry is not None:
            MarkerTables(load.session, load.name, load.entry.table_id).refuse_late(load.plan.table, marker)
        self._take_effect()
        self._write_tombstones()
        made = load.session.describe(load.name)
        committed_at = MarkerTables(load.session, load.name, made.table_id if made else "").write(marker)
        load.session.commit()
        return Commit(str(marker.sequence), committed_at, self.method.name)

    def _take_effect(self) -> None:
        """Phases 2 to 4, at most once."""
        if not self._is_applied:
            self._change_schema()
            self._repair()
            self._apply()
            self._is_applied = True

    def _change_schema(self) -> None:
        load = self.load
        if load.entry is None:
            if load.name.schema is not None:
                load.session.execute(f"CREATE SCHEMA IF NOT EXISTS {load.sql.schema(load.name)}")
            columns = ", ".join(f"{load.sql.quote(c.name)} {c.native}" for c in load.written)
            load.session.execute(f"CREATE TABLE {load.table_sql} ({columns})")
            MarkerTables(load.session, load.name, "").forget()
            return
        for change in load.plan.schema_changes:
            match change:
                case AddColumn(column=column):
                    native = load.native(column).native
                    load.session.execute(
                        f"ALTER TABLE {load.table_sql} ADD COLUMN {load.sql.quote(column.name)} {native}"
                    )
                case ChangeType():
                    pass  # later, when the table is empty

    def _repair(self) -> None:
        load, shape = self.load, self.load.plan.shape
        if self.effect.duplicates is None or not isinstance(shape, Merge):
            return
        self._delete(KeyMatch(load, DUPLICATES, shape.match), self.effect.duplicated_rows)
        names = load.sql.quote_list([c.name for c in load.held])
        self._change(
            f"INSERT INTO {load.table_sql} ({names}) SELECT {names} FROM {load.sql.quote(SURVIVORS)}",
            self.effect.duplicates.keys,
        )

    def _apply(self) -> None:
        load = self.load
        match load.plan.shape:
            case Append():
                self._insert_batch()
            case ReplaceTable():
                self._empty()
                self._insert_batch()
            case ReplaceSlices(columns=columns):
                self._delete(KeyMatch(load, STAGED, columns), self.counts.deleted)
                self._insert_batch()
            case Merge(rebuilds=True):
                self._empty()
                self._insert_labelled()
            case Merge(match=match):
                self._merge(match)

    def _empty(self) -> None:
        """Deletes all rows, and then changes types: only an empty table allows that."""
        load = self.load
        self._change(f"DELETE FROM {load.table_sql}", self.counts.deleted)
        for change in load.plan.schema_changes:
            if isinstance(change, ChangeType):
                changed = next(c for c in load.written if c.name == change.name)
                load.session.change_type(load.name, changed)

    def _merge(self, match: tuple[str, ...]) -> None:
        load, counts = self.load, self.counts
        repaired = 0 if self.effect.duplicates is None else self.effect.duplicates.rows
        if deleted := counts.deleted - repaired:
            self._delete(KeyMatch(load, LABELS, match, _labelled(load, Label.DELETE)), deleted)
        if counts.updated or counts.closed:
            self._update(match)
        if counts.inserted:
            self._insert_labelled()

    def _insert_labelled(self) -> None:
        load = self.load
        names = load.sql.quote_list([c.name for c in load.written])
        self._change(
            f"INSERT INTO {load.table_sql} ({names}) SELECT {names} FROM {load.sql.quote(LABELS)} AS o "
            f"WHERE {_labelled(load, Label.INSERT)}",
            self.counts.inserted,
        )

    def _update(self, match: tuple[str, ...]) -> None:
        load = self.load
        found_by = {name.casefold() for name in match}
        names = [c.name for c in load.written if c.name.casefold() not in found_by]
        values = ", ".join(f"{load.sql.quote(n)} = o.{load.sql.quote(n)}" for n in names or match)
        wanted = _labelled(load, Label.UPDATE, Label.CLOSE)
        labels = load.sql.quote(LABELS)
        update = f"UPDATE {load.table_sql} AS t SET {values} FROM {labels} AS o WHERE {wanted} AND "
        if address := self.effect.address:
            load.session.execute(address.prefer)
            changed = load.session.execute(f"{update}t.{address.column} = o.{load.sql.quote(ADDRESS)}")
            load.session.execute(address.afterwards)
        else:
            same = " AND ".join(f"t.{load.sql.quote(name)} = o.{load.sql.quote(name)}" for name in match)
            changed = load.session.execute(update + same)
            if KeyMatch(load, LABELS, match, wanted).has_nulls():
                null = load.sql.any_null("o", match)
                changed += load.session.execute(f"{update}({null}) AND {load.sql.same('o', 't', match)}")
        self._require(changed, self.counts.updated + self.counts.closed, update)

    def _insert_batch(self) -> None:
        load = self.load
        names, staged = load.sql.quote_list([c.name for c in load.written]), load.sql.quote(STAGED)
        self._change(
            f"INSERT INTO {load.table_sql} ({names}) SELECT {load.written_values} FROM {staged}",
            self.counts.inserted,
        )

    def _delete(self, matched: KeyMatch, expected: int) -> None:
        table = self.load.table_sql
        done = sum(
            self.load.session.execute(f"DELETE FROM {table} AS t WHERE {condition}")
            for condition in matched.conditions("t")
        )
        self._require(done, expected, f"DELETE FROM {table}")

    def _change(self, sql: str, expected: int) -> None:
        self._require(self.load.session.execute(sql), expected, sql)

    def _require(self, done: int, expected: int, sql: str) -> None:
        if done != expected:
            raise CountsDoNotBalance(
                f"{self.load.plan.table}: the plan has {expected} rows and the database changed {done} "
                f"({sql[:40]}…); everything was rolled back",
                hint="check the table for triggers, rules and policies that change what a statement does",
                facts={"expected": expected, "changed": done},
            )

    def _write_tombstones(self) -> None:
        shape = self.load.plan.shape
        if isinstance(shape, Merge) and shape.tombstones is not None:
            write_tombstones(self.load, shape.tombstones)

    def _merged(self, label: Label, match: tuple[str, ...], limit: int) -> list[SampleRow]:
        load = self.load
        names = [c.name for c in load.written]
        chosen = (
            f"(SELECT * FROM {load.sql.quote(LABELS)} AS o WHERE {_labelled(load, label)} "
            f"ORDER BY {load.sql.quote_list(match, 'o')} LIMIT {limit}) AS o"
        )
        if label is Label.INSERT:
            rows = self._rows(f"SELECT {load.sql.quote_list(names, 'o')} FROM {chosen}")
            return [SampleRow(label, None, row) for row in rows]
        if load.entry is None:
            return []
        held = [c.name for c in load.held]
        types = [c.spark for c in (*load.held, *load.written)]
        query = (
            f"SELECT {load.sql.quote_list(held, 't')}, {load.sql.quote_list(names, 'o')} FROM {chosen} "
            f"JOIN {load.sql.table(load.current)} AS t ON {load.sql.same('t', 'o', match)} LIMIT {limit}"
        )
        samples = []
        for row in load.session.fetch_values(query, types):
            before = dict(zip(held, row[: len(held)], strict=True))
            after = dict(zip(names, row[len(held) :], strict=True))
            samples.append(SampleRow(label, before, None if label is Label.DELETE else after))
        return samples

    def _rows(self, query: str) -> list[dict[str, object]]:
        columns = self.load.written
        rows = self.load.session.fetch_values(query, [c.spark for c in columns])
        return [dict(zip([c.name for c in columns], row, strict=True)) for row in rows]


def _method(plan: Plan, counts: Counts) -> WriteMethod:
    match plan.shape:
        case Append():
            return _APPEND
        case ReplaceTable() | Merge(rebuilds=True):
            return _OVERWRITE
        case ReplaceSlices():
            return _REPLACE
        case Merge():
            return _SKIP if counts.changes == 0 else _MERGE


def _rows_after(load: LoadContext, effect: LoadEffect) -> str:
    """A query for the rows that the table would have after the load. For plans only: a load applies its
    effect first and reads the table itself. The conformance suite checks that both give the same rows."""
    return " UNION ALL ".join(_parts(load, effect))


def _parts(load: LoadContext, effect: LoadEffect) -> Iterator[str]:
    batch = f"SELECT {load.written_values} FROM {load.sql.quote(STAGED)}"
    match load.plan.shape:
        case Append():
            yield from _kept_rows(load)
            yield batch
        case ReplaceTable():
            yield batch
        case ReplaceSlices(columns=columns):
            yield from _kept_rows(load, KeyMatch(load, STAGED, columns))
            yield batch
        case Merge(match=match, rebuilds=rebuilds):
            replaced = KeyMatch(load, LABELS, match, _labelled(load, *_REPLACED))
            names = load.sql.quote_list([c.name for c in load.written])
            if rebuilds:
                pass
            elif effect.duplicates is None:
                yield from _kept_rows(load, replaced)
            else:
                yield from _kept_rows(load, replaced, KeyMatch(load, DUPLICATES, match))
                yield _rows(load, load.sql.quote(SURVIVORS), replaced)
            yield f"SELECT {names} FROM {load.sql.quote(LABELS)} AS o WHERE {_labelled(load, *_WRITTEN)}"


def _kept_rows(load: LoadContext, *removed: KeyMatch) -> Iterator[str]:
    if load.entry is not None:
        yield _rows(load, load.table_sql, *removed)


def _rows(load: LoadContext, table: str, *removed: KeyMatch) -> str:
    """Rows of `table` without the removed ones. A NULL in the table's columns makes a condition neither true
    nor false: such a row is kept."""
    held = {column.name for column in load.held}
    values = ", ".join(
        f"t.{load.sql.quote(c.name)}" if c.name in held else load.engine.coerced("NULL", c.native)
        for c in load.written
    )
    stays = [f"({condition}) IS NOT TRUE" for matched in removed for condition in matched.conditions("t")]
    return f"SELECT {values} FROM {table} AS t WHERE {' AND '.join(stays) or 'TRUE'}"


def write_tombstones(load: LoadContext, tombstones: Tombstones) -> None:
    """Adds tombstones for the keys that this batch deletes and removes expired ones. Tombstones of an earlier
    table of this name are dropped."""
    table = load.sql.table(load.tombstone_table(tombstones))
    if load.is_first_load:
        load.session.execute(f"DROP TABLE IF EXISTS {table}")
    columns = load.tombstone_columns(tombstones)
    defined = ", ".join(f"{load.sql.quote(c.name)} {c.native}" for c in columns)
    load.session.execute(f"CREATE TABLE IF NOT EXISTS {table} ({defined})")
    now = load.sql.render(load.engine.moment(load.plan.as_of))
    before = load.sql.render(load.engine.moment(tombstones.forget_before))
    load.session.execute(f"DELETE FROM {table} WHERE {load.sql.quote(DELETED_AT)} < {before}")
    values = ", ".join(load.engine.coerced(f"q.{load.sql.quote(c.name)}", c.native) for c in columns[:-1])
    load.session.execute(
        f"INSERT INTO {table} ({load.sql.quote_list([c.name for c in columns])}) "
        f"SELECT {values}, {now} FROM ({load.query(tombstones.new)}) AS q"
    )


def _labelled(load: LoadContext, *labels: Label) -> str:
    return f"o.{load.sql.quote(LABEL)} IN ({', '.join(load.sql.text(label) for label in labels)})"
