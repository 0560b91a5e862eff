"""A computed plan in an open session, and its commit.

The phases of `commit`, all in the transaction that computed the labels:

1. the fence: a sequence that a newer writer has used, or a content that was applied, stops it
2. schema, table, new columns
3. duplicates: all rows of a duplicated match go out, one of each comes back
4. deletes, updates, inserts; the driver's row counts must be those of the labels
   (`check`, called before, has done 2 to 4 already, so that gates see the table as it will be)
5. tombstones
6. markers and fence
7. COMMIT
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tallymark.destinations.contract import Commit, DuplicatesFound, SampleRow, WriteMethod
from tallymark.destinations.warehouse.engine import quoted, quoted_list
from tallymark.destinations.warehouse.gates import GateQueries, after_relation
from tallymark.destinations.warehouse.labels import Effect
from tallymark.destinations.warehouse.markers import MarkerTables
from tallymark.destinations.warehouse.work import (
    ADDRESS,
    DELETED_AT,
    DUPLICATES,
    LABELS,
    STAGED,
    SURVIVORS,
    Matching,
    Work,
)
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
_BROUGHT = (Label.INSERT, Label.UPDATE, Label.CLOSE)
_REPLACED = (Label.UPDATE, Label.CLOSE, Label.DELETE)
_APPEND = WriteMethod("append", "every row is added")
_OVERWRITE = WriteMethod("overwrite", "the whole table is replaced")
_REPLACE = WriteMethod("replace", "whole slices of the table are replaced")
_SKIP = WriteMethod("skip", "no row changes, so only the marker is written")
_MERGE = WriteMethod("merge", "rows are deleted, updated and inserted by their labels")


@dataclass
class WarehouseLoad:
    """A prepared load (`contract.PreparedLoad`)."""

    work: Work
    effect: Effect
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
    def method(self) -> WriteMethod:
        return _method(self.work.plan, self.counts)

    def sql(self) -> str:
        match self.work.plan.shape:
            case Merge(labels=labels):
                return self.work.shown(labels)
            case Append() | ReplaceTable() | ReplaceSlices():
                return f"SELECT {self.work.written_values} FROM {INCOMING}"

    def samples(self, limit: int) -> list[SampleRow]:
        match self.work.plan.shape:
            case Merge(match=match):
                return [sample for label in _CHANGING for sample in self._merged(label, match, limit)]
            case Append() | ReplaceTable() | ReplaceSlices():
                query = f"SELECT {self.work.written_values} FROM {quoted(STAGED)} LIMIT {limit}"
                return [SampleRow(Label.INSERT, None, row) for row in self._rows(query)]

    def check(self, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
        if self.for_commit:
            self._take_effect()
            return GateQueries(self.work, self.work.name).results(gates)
        relation = after_relation(self.work, _rows_after(self.work, self.effect))
        return GateQueries(self.work, relation).results(gates)

    def commit(self, marker: Marker) -> Commit:
        work = self.work
        if work.relation is not None:
            MarkerTables(work.session, work.name, work.relation.table_id).refuse_late(work.plan.table, marker)
        self._take_effect()
        self._write_tombstones()
        made = work.session.relation(work.name)
        committed_at = MarkerTables(work.session, work.name, made.table_id if made else "").write(marker)
        work.session.commit()
        return Commit(str(marker.sequence), committed_at, self.method.name)

    def _take_effect(self) -> None:
        """Phases 2 to 4, once. Nothing of it is durable before the marker is."""
        if not self._is_applied:
            self._change_schema()
            self._repair()
            self._apply()
            self._is_applied = True

    def _change_schema(self) -> None:
        work = self.work
        if work.relation is None:
            if work.name.schema is not None:
                work.session.execute(f"CREATE SCHEMA IF NOT EXISTS {work.name.schema_sql}")
            columns = ", ".join(f"{quoted(c.name)} {c.native}" for c in work.written)
            work.session.execute(f"CREATE TABLE {work.name.sql} ({columns})")
            MarkerTables(work.session, work.name, "").forget()
            return
        for change in work.plan.schema_changes:
            match change:
                case AddColumn(column=column):
                    native = work.native(column).native
                    work.session.execute(
                        f"ALTER TABLE {work.name.sql} ADD COLUMN {quoted(column.name)} {native}"
                    )
                case ChangeType():
                    pass  # once the table is empty

    def _repair(self) -> None:
        shape = self.work.plan.shape
        if self.effect.duplicates is None or not isinstance(shape, Merge):
            return
        self._delete(Matching(self.work, DUPLICATES, shape.match), self.effect.duplicated_rows)
        names = quoted_list([c.name for c in self.work.held])
        self._change(
            f"INSERT INTO {self.work.name.sql} ({names}) SELECT {names} FROM {quoted(SURVIVORS)}",
            self.effect.duplicates.keys,
        )

    def _apply(self) -> None:
        work = self.work
        match work.plan.shape:
            case Append():
                self._insert_batch()
            case ReplaceTable():
                self._empty()
                self._insert_batch()
            case ReplaceSlices(columns=columns):
                self._delete(Matching(work, STAGED, columns), self.counts.deleted)
                self._insert_batch()
            case Merge(rebuilds=True):
                self._empty()
                self._insert_labelled()
            case Merge(match=match):
                self._merge(match)

    def _empty(self) -> None:
        """Takes all rows out; types can change only then."""
        work = self.work
        self._change(f"DELETE FROM {work.name.sql}", self.counts.deleted)
        for change in work.plan.schema_changes:
            if isinstance(change, ChangeType):
                changed = next(c for c in work.written if c.name == change.name)
                work.session.change_type(work.name, changed)

    def _merge(self, match: tuple[str, ...]) -> None:
        work, counts = self.work, self.counts
        repaired = 0 if self.effect.duplicates is None else self.effect.duplicates.rows
        if deleted := counts.deleted - repaired:
            self._delete(Matching(work, LABELS, match, _labelled(Label.DELETE)), deleted)
        if counts.updated or counts.closed:
            self._update(match)
        if counts.inserted:
            self._insert_labelled()

    def _insert_labelled(self) -> None:
        names = quoted_list([c.name for c in self.work.written])
        self._change(
            f"INSERT INTO {self.work.name.sql} ({names}) SELECT {names} FROM {quoted(LABELS)} AS o "
            f"WHERE {_labelled(Label.INSERT)}",
            self.counts.inserted,
        )

    def _update(self, match: tuple[str, ...]) -> None:
        work = self.work
        found_by = {name.casefold() for name in match}
        names = [c.name for c in work.written if c.name.casefold() not in found_by]
        values = ", ".join(f"{quoted(n)} = o.{quoted(n)}" for n in names or match)
        wanted = _labelled(Label.UPDATE, Label.CLOSE)
        update = f"UPDATE {work.name.sql} AS t SET {values} FROM {quoted(LABELS)} AS o WHERE {wanted} AND "
        if address := self.effect.address:
            work.session.execute(address.prefer)
            changed = work.session.execute(f"{update}t.{address.column} = o.{quoted(ADDRESS)}")
            work.session.execute(address.afterwards)
        else:
            same = " AND ".join(f"t.{quoted(name)} = o.{quoted(name)}" for name in match)
            changed = work.session.execute(update + same)
            if Matching(work, LABELS, match, wanted).has_nulls():
                null = " OR ".join(f"o.{quoted(name)} IS NULL" for name in match)
                changed += work.session.execute(f"{update}({null}) AND {work.same('o', 't', match)}")
        self._agree(changed, self.counts.updated + self.counts.closed, update)

    def _insert_batch(self) -> None:
        work = self.work
        names = quoted_list([c.name for c in work.written])
        self._change(
            f"INSERT INTO {work.name.sql} ({names}) SELECT {work.written_values} FROM {quoted(STAGED)}",
            self.counts.inserted,
        )

    def _delete(self, matching: Matching, expected: int) -> None:
        table = self.work.name.sql
        done = sum(
            self.work.session.execute(f"DELETE FROM {table} AS t WHERE {condition}")
            for condition in matching.conditions("t")
        )
        self._agree(done, expected, f"DELETE FROM {table}")

    def _change(self, sql: str, expected: int) -> None:
        self._agree(self.work.session.execute(sql), expected, sql)

    def _agree(self, done: int, expected: int, sql: str) -> None:
        if done != expected:
            raise CountsDoNotBalance(
                f"{self.work.plan.table}: the plan said {expected} rows and the database changed {done} "
                f"({sql[:40]}…); everything was rolled back",
                hint="a trigger, a rule or a policy of the table may change what a statement does",
                facts={"expected": expected, "changed": done},
            )

    def _write_tombstones(self) -> None:
        shape = self.work.plan.shape
        if isinstance(shape, Merge) and shape.tombstones is not None:
            write_tombstones(self.work, shape.tombstones)

    def _merged(self, label: Label, match: tuple[str, ...], limit: int) -> list[SampleRow]:
        work = self.work
        names = [c.name for c in work.written]
        chosen = (
            f"(SELECT * FROM {quoted(LABELS)} AS o WHERE {_labelled(label)} "
            f"ORDER BY {quoted_list(match, 'o')} LIMIT {limit}) AS o"
        )
        if label is Label.INSERT:
            rows = self._rows(f"SELECT {quoted_list(names, 'o')} FROM {chosen}")
            return [SampleRow(label, None, row) for row in rows]
        if work.relation is None:
            return []
        held = [c.name for c in work.held]
        types = [c.spark for c in (*work.held, *work.written)]
        query = (
            f"SELECT {quoted_list(held, 't')}, {quoted_list(names, 'o')} FROM {chosen} "
            f"JOIN {work.current.sql} AS t ON {work.same('t', 'o', match)} LIMIT {limit}"
        )
        samples = []
        for row in work.session.values(query, types):
            before = dict(zip(held, row[: len(held)], strict=True))
            after = dict(zip(names, row[len(held) :], strict=True))
            samples.append(SampleRow(label, before, None if label is Label.DELETE else after))
        return samples

    def _rows(self, query: str) -> list[dict[str, object]]:
        columns = self.work.written
        rows = self.work.session.values(query, [c.spark for c in columns])
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


def _rows_after(work: Work, effect: Effect) -> str:
    """The rows that the table would hold after the load, as a query: for a plan, which changes nothing. A
    load applies its effect first and reads the table itself; the conformance suite holds both to the same."""
    return " UNION ALL ".join(_parts(work, effect))


def _parts(work: Work, effect: Effect) -> Iterator[str]:
    brought = f"SELECT {work.written_values} FROM {quoted(STAGED)}"
    match work.plan.shape:
        case Append():
            yield from _staying(work)
            yield brought
        case ReplaceTable():
            yield brought
        case ReplaceSlices(columns=columns):
            yield from _staying(work, Matching(work, STAGED, columns))
            yield brought
        case Merge(match=match, rebuilds=rebuilds):
            replaced = Matching(work, LABELS, match, _labelled(*_REPLACED))
            names = quoted_list([c.name for c in work.written])
            if rebuilds:
                pass
            elif effect.duplicates is None:
                yield from _staying(work, replaced)
            else:
                yield from _staying(work, replaced, Matching(work, DUPLICATES, match))
                yield _rows(work, quoted(SURVIVORS), replaced)
            yield f"SELECT {names} FROM {quoted(LABELS)} AS o WHERE {_labelled(*_BROUGHT)}"


def _staying(work: Work, *going: Matching) -> Iterator[str]:
    if work.relation is not None:
        yield _rows(work, work.name.sql, *going)


def _rows(work: Work, table: str, *going: Matching) -> str:
    """A NULL in the table's columns makes a condition neither true nor false: such a row stays."""
    held = {column.name for column in work.held}
    values = ", ".join(
        f"t.{quoted(c.name)}" if c.name in held else work.engine.coerced("NULL", c.native)
        for c in work.written
    )
    stays = [f"({condition}) IS NOT TRUE" for matching in going for condition in matching.conditions("t")]
    return f"SELECT {values} FROM {table} AS t WHERE {' AND '.join(stays) or 'TRUE'}"


def write_tombstones(work: Work, tombstones: Tombstones) -> None:
    """Adds what this batch deletes and removes what is too old to matter. Tombstones of an earlier table of
    this name do not count."""
    table = work.tombstone_table(tombstones).sql
    if work.is_first_load:
        work.session.execute(f"DROP TABLE IF EXISTS {table}")
    columns = work.tombstone_columns(tombstones)
    defined = ", ".join(f"{quoted(c.name)} {c.native}" for c in columns)
    work.session.execute(f"CREATE TABLE IF NOT EXISTS {table} ({defined})")
    dialect = work.engine.dialect
    now = work.engine.moment(work.plan.as_of).sql(dialect=dialect)
    before = work.engine.moment(tombstones.forget_before).sql(dialect=dialect)
    work.session.execute(f"DELETE FROM {table} WHERE {quoted(DELETED_AT)} < {before}")
    values = ", ".join(work.engine.coerced(f"q.{quoted(c.name)}", c.native) for c in columns[:-1])
    work.session.execute(
        f"INSERT INTO {table} ({quoted_list([c.name for c in columns])}) "
        f"SELECT {values}, {now} FROM ({work.query(tombstones.new)}) AS q"
    )


def _labelled(*labels: Label) -> str:
    return f"o.{quoted(LABEL)} IN ({_texts([str(label) for label in labels])})"


def _texts(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)
