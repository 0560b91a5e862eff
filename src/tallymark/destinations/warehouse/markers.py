"""Markers and fence of the tables of one schema, in two tables beside them.

`_tallymark_applied` has one row per content of a load. The marker is stored without its content hashes, which
are the rows themselves: otherwise a load of 500 files would store 500 times 500 hashes.
`_tallymark_fence` has one row per table: the last sequence, and the columns that the last load left unique.

Where the engine can tell that a table was dropped and created again (`table_id`), rows of the earlier table
are ignored. A restored dump has new ids everywhere: then the marker table's own id (`home_id`) differs
too, and its rows are matched by name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tallymark.destinations.contract import TableMarkers
from tallymark.destinations.warehouse.engine import Session, TableName
from tallymark.errors import Fenced
from tallymark.model.receipt import Applied, Marker

APPLIED = "_tallymark_applied"
FENCE = "_tallymark_fence"
_HASHES_AT_ONCE = 500

_APPLIED_COLUMNS = """table_name TEXT NOT NULL, table_id TEXT NOT NULL, home_id TEXT NOT NULL,
    content_hash TEXT NOT NULL, position INTEGER NOT NULL, sequence BIGINT NOT NULL, fence BIGINT NOT NULL,
    batch_id TEXT NOT NULL, marker TEXT NOT NULL, committed_at TEXT NOT NULL,
    PRIMARY KEY (table_name, content_hash)"""
_FENCE_COLUMNS = """table_name TEXT NOT NULL PRIMARY KEY, table_id TEXT NOT NULL, home_id TEXT NOT NULL,
    sequence BIGINT NOT NULL, fence BIGINT NOT NULL, unique_by TEXT NOT NULL"""


@dataclass(frozen=True)
class LastLoad:
    """What the fence table has of the last load into a table; zeros if there was none."""

    sequence: int = 0
    fence: int = 0
    unique_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class MarkerTables:
    session: Session
    name: TableName  # of the loaded table
    table_id: str

    def last(self) -> LastLoad:
        home = self._home(FENCE)
        if home is None:
            return LastLoad()
        rows = self.session.fetch(
            f"SELECT sequence, fence, unique_by FROM {self._at(FENCE)} WHERE {self._mine(home)}"
        )
        if not rows:
            return LastLoad()
        sequence, fence, unique_by = map(str, rows[0])
        return LastLoad(int(sequence), int(fence), tuple(json.loads(unique_by)))

    def batch_of(self, sequence: int) -> str:
        """Empty for a load without contents, which leaves only its sequence."""
        home = self._home(APPLIED)
        if home is None:
            return ""
        rows = self.session.fetch(
            f"SELECT batch_id FROM {self._at(APPLIED)} "
            f"WHERE {self._mine(home)} AND sequence = {sequence} AND position = 0"
        )
        return str(rows[0][0]) if rows else ""

    def find(self, content_hashes: Collection[str] | None) -> TableMarkers:
        home = self._home(APPLIED)
        if home is None:
            return TableMarkers({})
        rows: list[tuple[object, ...]] = []
        for chosen in self._chosen(content_hashes):
            rows += self.session.fetch(
                f"SELECT content_hash, sequence, marker, committed_at FROM {self._at(APPLIED)} "
                f"WHERE {self._mine(home)}{chosen}"
            )
        contents = self._contents(home, {int(str(row[1])) for row in rows}, whole=content_hashes is None)
        by_hash = {}
        for content, sequence, text, committed_at in rows:
            marker = Marker.from_json(str(text))
            if marker is not None:
                whole = replace(marker, content_hashes=contents[int(str(sequence))])
                at = datetime.fromisoformat(str(committed_at))
                by_hash[str(content)] = Applied(whole, str(sequence), at)
        last = self.last()  # a restore of the database rolls it back together with the rows
        return TableMarkers(by_hash, last.sequence, last.fence, held_sequence=last.sequence)

    def refuse_late(self, table: str, marker: Marker) -> None:
        """Phase 1 of every commit. Expects the lock."""
        found = self.find(marker.content_hashes)
        if marker.sequence <= found.last_sequence:
            raise Fenced(
                f"{table}: sequence {marker.sequence} was used by a newer writer "
                f"(the table is at {found.last_sequence}); nothing was written",
                hint="run again: the load is claimed again",
            )
        if found.by_hash:
            other = next(iter(found.by_hash.values())).marker
            raise Fenced(
                f"{table}: a content of this batch was applied by batch {other.batch_id}; "
                "nothing was written",
                hint="run again: what is applied is not loaded twice",
            )

    def write(self, marker: Marker) -> datetime:
        """Expects `refuse_late` before. Removes rows of an earlier table of this name."""
        self.session.lock_markers(self.name)
        for table, columns in ((APPLIED, _APPLIED_COLUMNS), (FENCE, _FENCE_COLUMNS)):
            self.session.execute(f"CREATE TABLE IF NOT EXISTS {self._at(table)} ({columns})")
        homes = {table: self._home(table) or "" for table in (APPLIED, FENCE)}
        if self.last().sequence == 0:
            self.forget()
        committed_at = datetime.now(UTC)
        table = ", ".join(map(self._text, (self.name.key, self.table_id, homes[APPLIED])))
        short = replace(marker, content_hashes=()).to_json()
        batch = ", ".join(map(self._text, (marker.batch_id, short, committed_at.isoformat())))
        rows = [
            f"({table}, {self._text(content)}, {position}, {marker.sequence}, {marker.fence}, {batch})"
            for position, content in enumerate(dict.fromkeys(marker.content_hashes))
        ]
        for some in _slices(rows):
            self.session.execute(f"INSERT INTO {self._at(APPLIED)} VALUES {', '.join(some)}")
        self._write_fence(marker, homes[FENCE])
        return committed_at

    def forget(self) -> None:
        """Deletes all rows of this name: their table no longer exists."""
        for table in (APPLIED, FENCE):
            if self._home(table) is not None:
                self.session.execute(
                    f"DELETE FROM {self._at(table)} WHERE table_name = {self._text(self.name.key)}"
                )

    def _write_fence(self, marker: Marker, home: str) -> None:
        """An UPDATE wherever possible: with optimistic transactions it makes two loads conflict."""
        unique_by = self._text(json.dumps(list(marker.unique_by)))
        changed = self.session.execute(
            f"UPDATE {self._at(FENCE)} SET sequence = {marker.sequence}, fence = {marker.fence}, "
            f"unique_by = {unique_by}, table_id = {self._text(self.table_id)}, home_id = {self._text(home)} "
            f"WHERE table_name = {self._text(self.name.key)}"
        )
        if changed == 0:
            self.session.execute(
                f"INSERT INTO {self._at(FENCE)} VALUES ({self._text(self.name.key)}, "
                f"{self._text(self.table_id)}, {self._text(home)}, "
                f"{marker.sequence}, {marker.fence}, {unique_by})"
            )

    def _contents(self, home: str, sequences: set[int], *, whole: bool) -> dict[int, tuple[str, ...]]:
        if not sequences:
            return {}
        wanted = "" if whole else f" AND sequence IN ({', '.join(map(str, sorted(sequences)))})"
        rows = self.session.fetch(
            f"SELECT sequence, content_hash FROM {self._at(APPLIED)} WHERE {self._mine(home)}{wanted} "
            "ORDER BY sequence, position"
        )
        contents: dict[int, list[str]] = {}
        for sequence, content in rows:
            contents.setdefault(int(str(sequence)), []).append(str(content))
        return {sequence: tuple(hashes) for sequence, hashes in contents.items()}

    def _chosen(self, content_hashes: Collection[str] | None) -> Iterator[str]:
        if content_hashes is None:
            yield ""
            return
        for some in _slices(list(content_hashes)):
            yield f" AND content_hash IN ({', '.join(map(self._text, some))})"

    def _text(self, value: str) -> str:
        return self.session.dialect.text(value)

    def _home(self, table: str) -> str | None:
        entry = self.session.describe(self.name.beside(table))
        return None if entry is None else entry.table_id

    def _at(self, table: str) -> str:
        return self.session.dialect.table(self.name.beside(table))

    def _mine(self, home: str) -> str:
        return (
            f"table_name = {self._text(self.name.key)} "
            f"AND (table_id = {self._text(self.table_id)} OR home_id <> {self._text(home)})"
        )


def _slices(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), _HASHES_AT_ONCE):
        yield items[start : start + _HASHES_AT_ONCE]
