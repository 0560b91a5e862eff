"""What each strategy means, in plain Python: rows are dicts, a table is a list of them.

This is the table of DESIGN section 4 a second time, written as differently from the product as can be, so
that both being wrong in the same way is unlikely. It goes row by row, the product by whole relations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from oracle_history import Versions
from tallymark.model.receipt import Counts
from tallymark.model.settings import CdcSettings, MergeSettings, Operation, Strategy
from tallymark.model.table import is_provenance

Row = dict[str, Any]
Key = tuple[Any, ...]


class Tied(Exception):
    """The declared order cannot tell two different rows apart."""


@dataclass
class Oracle:
    settings: MergeSettings
    rows: list[Row] = field(default_factory=list)
    gone: dict[Key, Key] = field(default_factory=dict)  # key → sequence of its last delete
    cut: Key | None = None  # sequence of the last truncate

    def load(self, batch: Sequence[Row], as_of: datetime | None = None) -> Counts:
        """`batch` is one file. Nothing changes when it is refused."""
        match self.settings.strategy:
            case Strategy.APPEND_ONLY:
                counts = Counts(inserted=len(batch), total=len(batch))
                self.rows = [*self.rows, *batch]
            case Strategy.FULL_REFRESH:
                counts = Counts(inserted=len(batch), deleted=len(self.rows), total=len(batch))
                self.rows = list(batch)
            case Strategy.DELETE_INSERT:
                counts = self._replace_slices(batch, self.settings.unique_key)
            case Strategy.SNAPSHOT:
                counts = self._replace_slices(batch, (str(self.settings.partition_column),))
            case Strategy.SCD2:
                counts = self._versions(batch, as_of)
            case Strategy.CDC:
                assert self.settings.cdc is not None
                counts = self._changes(batch, self.settings.cdc)
            case _:
                counts = self._by_key(batch)
        return counts

    # rows by key

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.settings.unique_key)

    def _replace_slices(self, batch: Sequence[Row], columns: Sequence[str]) -> Counts:
        touched = [[row[name] for name in columns] for row in batch]
        kept = [row for row in self.rows if [row[name] for name in columns] not in touched]
        deleted = len(self.rows) - len(kept)
        self.rows = [*kept, *batch]
        return Counts(inserted=len(batch), deleted=deleted, total=len(batch))

    def _order(self) -> tuple[str, ...]:
        settings = self.settings
        mark = (settings.watermark_column,) if settings.watermark_column else ()
        if settings.strategy is Strategy.DEDUPLICATE and settings.dedup_order_by:
            return settings.dedup_order_by
        return mark or settings.dedup_order_by

    def _by_key(self, batch: Sequence[Row]) -> Counts:
        order = self._order()
        winners: dict[Key, Row] = {}
        for row in batch:
            best = winners.get(self._key(row))
            if best is None or _place(row, order) >= _place(best, order):
                winners[self._key(row)] = row
        if order:
            for row in batch:
                best = winners[self._key(row)]
                if _place(row, order) == _place(best, order) and not _same(row, best):
                    raise Tied(self._key(row))
        table, removed = self._deduplicated(order)
        counts = Counter(skipped=len(batch) - len(winners), deleted=removed)
        strategy = self.settings.strategy
        newer_stays = strategy in (Strategy.INCREMENTAL, Strategy.DEDUPLICATE)
        for key, row in winners.items():
            old = table.get(key)
            if old is None:
                if strategy is Strategy.UPDATE:
                    counts["skipped"] += 1
                else:
                    counts["inserted"] += 1
                    table[key] = row
            elif newer_stays and _place(row, order) < _place(old, order):
                counts["skipped"] += 1
            elif self.settings.skip_unchanged and self._equal(row, old):
                counts["unchanged"] += 1
            elif strategy is Strategy.INSERT:
                counts["skipped"] += 1
            else:
                counts["updated"] += 1
                table[key] = {**old, **row}
        if strategy is Strategy.FULL_MERGE:
            for key in [key for key in table if key not in winners]:
                del table[key]
                counts["deleted"] += 1
        self.rows = list(table.values())
        return Counts(**counts, total=len(batch))

    def _deduplicated(self, order: Sequence[str]) -> tuple[dict[Key, Row], int]:
        """The last by the declared order survives, then the greatest by its values."""
        table: dict[Key, Row] = {}
        for row in self.rows:
            best = table.get(self._key(row))
            if best is None or _place(row, [*order, *row]) > _place(best, [*order, *row]):
                table[self._key(row)] = row
        return table, len(self.rows) - len(table)

    def _equal(self, row: Row, old: Row) -> bool:
        chosen = self.settings.compare_columns or [name for name in row if not is_provenance(name)]
        return all(_same(row.get(name), old.get(name)) for name in chosen)

    # histories

    def _versions(self, batch: Sequence[Row], as_of: datetime | None) -> Counts:
        scd2 = self.settings.scd2
        by_time: dict[tuple[Key, Any], Row] = {}
        for row in batch:
            at = row[scd2.effective_from] if scd2.effective_from else as_of
            place = (self._key(row), at)
            old = by_time.get(place)
            if old is not None and _place(old, self._order()) > _place(row, self._order()):
                continue
            if scd2.effective_from and old is not None and not _same(old, row):
                raise Tied(place)
            by_time[place] = row
        skipped = len(batch) - len(by_time)
        mine = {scd2.valid_from, scd2.valid_to, scd2.current_flag}
        left_out = mine | {scd2.effective_from} | set(self.settings.unique_key)

        def tracked(row: Row) -> Row:
            chosen = self.settings.compare_columns
            return {
                n: v for n, v in row.items() if (n in chosen if chosen else n not in left_out) and not is_provenance(n)
            }  # fmt: skip

        lines: dict[Key, Versions] = defaultdict(lambda: Versions(tracked))
        for row in self.rows:
            content = {name: value for name, value in row.items() if name not in mine}
            lines[self._key(row)].held(row[scd2.valid_from], row[scd2.valid_to], content)
        for (key, at), row in sorted(by_time.items(), key=lambda item: item[0][1]):
            lines[key].observe(at, row)
        if scd2.close_absent:
            for key in lines.keys() - {key for key, _ in by_time}:
                lines[key].close(as_of)
        total = Counter(skipped=skipped)
        self.rows = []
        for line in lines.values():
            total.update(line.counts())
            for start, end, content in line.versions:
                flag = {scd2.current_flag: end is None} if scd2.current_flag else {}
                self.rows.append({**content, scd2.valid_from: start, scd2.valid_to: end, **flag})
        return Counts(**total, total=len(batch))

    # change feeds

    def _changes(self, batch: Sequence[Row], feed: CdcSettings) -> Counts:
        kinds = {code: operation for operation in Operation for code in feed.codes_of(operation)}

        def kind(row: Row) -> Operation:
            return kinds[row[feed.operation_column].strip().lower()]

        def payload(row: Row) -> Row:
            return {name: value for name, value in row.items() if name != feed.operation_column}

        def sequence(row: Row) -> Key:
            return _place(row, feed.sequence_by)

        before = {self._key(row): row for row in self.rows}
        if feed.sequence_by:
            self._refuse_equal_sequences(batch, kind, payload, sequence)
        table, gone, cut = dict(before), dict(self.gone), self.cut
        last: dict[Key, Row] = {}
        for row in sorted(batch, key=sequence):  # stable: position decides where the sequence does not
            place = sequence(row)
            if kind(row) is Operation.TRUNCATE:
                table = {k: r for k, r in table.items() if feed.sequence_by and sequence(r) > place}
                last = {k: r for k, r in last.items() if feed.sequence_by and sequence(r) > place}
                cut = place if cut is None else max(cut, place)
                continue
            key = self._key(row)
            held = before.get(key)
            stale = feed.sequence_by and (
                (held is not None and place < sequence(held))
                or (key in self.gone and place <= self.gone[key])
                or (self.cut is not None and place <= self.cut)
            )
            if stale:
                continue
            last[key] = row
            old = table.get(key, {})
            if kind(row) is Operation.DELETE:
                table.pop(key, None)
            elif feed.partial and kind(row) is Operation.UPDATE:
                table[key] = {
                    **old,
                    **{n: v for n, v in payload(row).items() if v is not None or n not in old},
                }
            else:
                table[key] = {**(old if not feed.partial else {}), **payload(row)}
        for row in batch:
            if feed.sequence_by and kind(row) is Operation.DELETE:
                key = self._key(row)
                gone[key] = max(gone.get(key, sequence(row)), sequence(row))
        if not feed.sequence_by:
            cut = None
        counts = Counter(total=len(batch))
        for key, row in last.items():
            repeated = feed.sequence_by and key in before and sequence(row) == sequence(before[key])
            if repeated and (kind(row) is Operation.DELETE or not self._equal(table[key], before[key])):
                raise Tied(key)
            if kind(row) is Operation.DELETE:
                counts["deleted" if key in before else "skipped"] += 1
            elif key not in before:
                counts["inserted"] += 1
            else:
                counts["unchanged" if self._equal(table[key], before[key]) else "updated"] += 1
        counts["skipped"] += len(batch) - len(last)
        counts["deleted"] += sum(key not in table and key not in last for key in before)
        self.rows, self.gone, self.cut = list(table.values()), gone, cut
        return Counts(**counts)

    def _refuse_equal_sequences(
        self,
        batch: Sequence[Row],
        kind: Callable[[Row], Operation],
        payload: Callable[[Row], Row],
        sequence: Callable[[Row], Key],
    ) -> None:
        seen: dict[tuple[Key, Key], Row | None] = {}
        for row in batch:
            if kind(row) is Operation.TRUNCATE:
                continue
            content = None if kind(row) is Operation.DELETE else payload(row)
            place = (self._key(row), sequence(row))
            if place in seen and not _same(seen[place], content):
                raise Tied(place)
            seen[place] = content


def apply_batch(
    table: Sequence[Row], batch: Sequence[Row], settings: MergeSettings
) -> tuple[list[Row], Counts]:
    oracle = Oracle(settings, list(table))
    counts = oracle.load(batch)
    return oracle.rows, counts


def _place(row: Row, order: Sequence[str]) -> Key:
    """What sorts rows: NULL first, so that it counts as oldest."""
    return tuple(
        (row.get(name) is not None, row.get(name)) if row.get(name) is not None else (False,)
        for name in order
    )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_same(a.get(name), b.get(name)) for name in {*a, *b})
    both_nan = a != a and b != b
    return bool(both_nan or a == b)


def canonical(rows: Sequence[Row]) -> list[Any]:
    """Rows as a sorted multiset; a missing column and NULL are the same."""
    names = sorted({name for row in rows for name in row})
    return sorted(
        repr([(name, _plain(row.get(name))) for name in names if row.get(name) is not None]) for row in rows
    )


def _plain(value: Any) -> Any:
    return 0.0 if value == 0 and isinstance(value, float) else value
