"""Change feeds without history: the last change of each key, by sequence, is what the table holds.

1. events   what each row of the batch does
2. last_cut the last truncate of the batch; past_cut the last one remembered
3. live     each event beside the table's row of its key, and whether it is stale: older than that row, than a
            remembered delete, than a cut
4. folded   with partial updates, values that an update does not carry come from the change before it
5. labels   the last live event of each key against the table's row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tallymark.model.plan import (
    CURRENT,
    FROM_BATCH,
    INCOMING,
    LABEL,
    POSITION,
    TOMBSTONES,
    Label,
    Merge,
    Refusal,
)
from tallymark.model.settings import CdcSettings, MergeSettings, Operation
from tallymark.model.table import Column, TableShape, find_column
from tallymark.strategies.duplicates import duplicates_of
from tallymark.strategies.feed import equal_sequences, has_truncate, is_kind, tombstones_of
from tallymark.strategies.glance import glance_of
from tallymark.strategies.sql import (
    compared,
    differs,
    in_table,
    latest_first,
    name,
    names,
    older,
    oldest_first,
    parse,
    rank,
    resolved,
    same_key,
)

_STALE, _RANK, _RESETS, _PRESENT = '"_tm_stale"', '"_tm_rank"', '"_tm_resets"', '"_tm_present"'
_CUT = '"_tm_cut"'
_DELETES, _INSERTS, _TRUNCATES = '"_tm_deletes"', '"_tm_inserts"', '"_tm_truncates"'


@dataclass(frozen=True)
class _Changes:
    settings: MergeSettings
    feed: CdcSettings
    given: Sequence[Column]
    written: Sequence[Column]
    current: TableShape | None

    @property
    def keys(self) -> tuple[str, ...]:
        return self.settings.unique_key

    @property
    def sequence(self) -> list[Column]:
        return resolved(self.given, self.feed.sequence_by)

    @property
    def held_sequence(self) -> list[Column]:
        """Empty when the table has no such columns yet: then no event is stale."""
        every = all(in_table(self.current, column.name) for column in self.sequence)
        return self.sequence if every else []

    @property
    def held(self) -> dict[str, str]:
        """What the steps call the values of the table's row, by the names of its columns."""
        columns = (c.name for c in self.written if in_table(self.current, c.name))
        return {column: name(f"_tm_held{at}") for at, column in enumerate(columns)}

    @property
    def order(self) -> list[Column]:
        return [*self.sequence, *POSITION]

    @property
    def payload(self) -> list[Column]:
        keys = {key.casefold() for key in self.keys}
        return [c for c in self.given if c.name.casefold() not in keys and find_column(self.written, c.name)]

    @property
    def carried(self) -> list[Column]:
        """What an update may leave out: not its sequence, which every event has of its own."""
        return [column for column in self.payload if column not in self.sequence]

    @property
    def cuts(self) -> bool:
        return has_truncate(self.feed)

    @property
    def remembers(self) -> bool:
        return bool(self.sequence)

    def steps(self) -> dict[str, str]:
        steps = {"events": self._events()}
        if self.cuts:
            steps["last_cut"] = self._latest(
                f"SELECT {names(c.name for c in self.order)} FROM events WHERE {_TRUNCATES} = 1", self.order
            )
        if self.remembers:
            any_key = " AND ".join(f"{name(key)} IS NULL" for key in self.keys)
            gone = f"SELECT * FROM {name(TOMBSTONES)}"
            steps["gone"] = f"""
                SELECT * FROM (SELECT *, ROW_NUMBER() OVER (
                  PARTITION BY {names(self.keys)} ORDER BY {latest_first(self.sequence)}) AS {_RANK}
                FROM ({gone} WHERE NOT ({any_key})) AS t) AS r WHERE {_RANK} = 1
            """
            if self.cuts:
                steps["past_cut"] = self._latest(f"{gone} WHERE {any_key}", self.sequence)
        steps["judged"] = self._judged()
        steps["live"] = self._live()
        if self.feed.partial:
            steps["counted"] = self._counted()
            steps["folded"] = self._folded()
        return steps

    def query(self) -> str:
        union = f" UNION ALL {self._cut_labels()}" if self.cuts else ""
        return f"{self._with()} {self._batch_labels()}{union}"

    def conflicts(self) -> str:
        """Keys whose event has the table's own sequence and another content."""
        return f"""
            {self._with()}
            SELECT {names(self.keys)} FROM {self._events_to_apply()}
            WHERE {_STALE} = 0 AND {_TRUNCATES} = 0 AND {_RANK} = 1 AND {self._conflicts()}
        """

    def _conflicts(self) -> str:
        if not self.held_sequence:
            return "FALSE"
        same = " AND ".join(f"{name(c.name)} = {self.held[c.name]}" for c in self.held_sequence)
        return f"{same} AND ({_DELETES} = 1 OR {self._differs()})"

    def _with(self) -> str:
        return "WITH " + ", ".join(f"{step} AS ({text})" for step, text in self.steps().items())

    # 1. events, 2. cuts

    def _events(self) -> str:
        flags = {
            _DELETES: Operation.DELETE,
            _INSERTS: Operation.INSERT,
            _TRUNCATES: Operation.TRUNCATE,
        }
        cases = ", ".join(
            f"CASE WHEN {is_kind(self.feed, operation)} THEN 1 ELSE 0 END AS {flag}"
            for flag, operation in flags.items()
        )
        return f"SELECT *, {cases} FROM {name(INCOMING)}"

    def _latest(self, rows: str, order: Sequence[Column]) -> str:
        return f"""
            SELECT * FROM (
              SELECT *, ROW_NUMBER() OVER (ORDER BY {latest_first(order)}) AS {_RANK} FROM ({rows}) AS t
            ) AS r WHERE {_RANK} = 1
        """

    # 3. live

    def _judged(self) -> str:
        stale = []
        table = f"SELECT *, 1 AS {_PRESENT} FROM {name(CURRENT)}"
        joins = [f"LEFT JOIN ({table}) AS c ON {same_key(self.keys, 'e', 'c')}"]
        if self.held_sequence:
            stale.append(f"(c.{_PRESENT} = 1 AND {older(self.sequence, 'e', 'c')})")
        if self.remembers:
            stale.append(f"(g.{_RANK} = 1 AND {older(self.sequence, 'e', 'g', or_equal=True)})")
            joins.append(f"LEFT JOIN gone AS g ON {same_key(self.keys, 'e', 'g')}")
            if self.cuts:
                stale.append(f"(p.{_RANK} = 1 AND {older(self.sequence, 'e', 'p', or_equal=True)})")
                joins.append("LEFT JOIN past_cut AS p ON TRUE")
        if self.cuts:
            stale.append(f"(t.{_RANK} = 1 AND {older(self.order, 'e', 't')})")
            joins.append("LEFT JOIN last_cut AS t ON TRUE")
        condition = " OR ".join(stale) or "FALSE"
        held = "".join(f", {name(column, 'c')} AS {alias}" for column, alias in self.held.items())
        return f"""
            SELECT e.*, c.{_PRESENT}{held},
                   CASE WHEN {condition} THEN 1 ELSE 0 END AS {_STALE},
                   CASE WHEN {self._row_was_cut()} THEN 1 ELSE 0 END AS {_CUT}
            FROM events AS e {" ".join(joins)}
        """

    def _row_was_cut(self) -> str:
        """Whether a truncate of the batch has removed the table's row of the key, so that a partial update
        after it has nothing to build on."""
        if not self.cuts:
            return "FALSE"
        newer = f"c.{_PRESENT} = 1 AND {older(self.sequence, 't', 'c')}" if self.held_sequence else "FALSE"
        return f"t.{_RANK} = 1 AND NOT ({newer})"

    def _live(self) -> str:
        resets = f"""
            {_CUT} + SUM(CASE WHEN {_DELETES} = 1 OR {_INSERTS} = 1 THEN 1 ELSE 0 END) OVER (
              PARTITION BY {names(self.keys)}, {_STALE}, {_TRUNCATES}
              ORDER BY {oldest_first(self.order)} ROWS UNBOUNDED PRECEDING)
        """
        return f"""
            SELECT *, {rank(self.keys, self.order, also=(_STALE, _TRUNCATES))} AS {_RANK},
              {resets if self.feed.partial else "0"} AS {_RESETS}
            FROM judged
        """

    # 4. folded

    def _counted(self) -> str:
        """Numbers the values of each column: an event without a value has the number of the last one."""
        counted = ", ".join(
            f"COUNT({_carried(c)}) OVER ({self._of_one_life()} ORDER BY {oldest_first(self.order)} "
            f"ROWS UNBOUNDED PRECEDING) AS {name(f'_tm_n{at}')}"
            for at, c in enumerate(self.carried)
        )
        return f"SELECT *, {counted or '0'} FROM live"

    def _folded(self) -> str:
        carried = {c.name.casefold() for c in self.carried}
        kept = [c.name for c in self.given if c.name.casefold() not in carried]
        kept += [c.name for c in POSITION]
        flags = [_DELETES, _INSERTS, _TRUNCATES, _STALE, _RANK, _RESETS, _PRESENT, *self.held.values()]
        folded = [
            f"FIRST_VALUE({_carried(c)}) OVER ({self._of_one_life()}, {name(f'_tm_n{at}')} "
            f"ORDER BY {oldest_first(self.order)}) AS {name(c.name)}"
            for at, c in enumerate(self.carried)
        ]
        return f"SELECT {', '.join([*map(name, kept), *flags, *folded])} FROM counted"

    def _of_one_life(self) -> str:
        return f"PARTITION BY {names(self.keys)}, {_STALE}, {_TRUNCATES}, {_RESETS}"

    # 5. labels

    def _events_to_apply(self) -> str:
        return "folded" if self.feed.partial else "live"

    def _value(self, column: Column) -> str:
        mine, theirs = name(column.name), self.held.get(column.name, "NULL")
        if find_column(self.given, column.name) is None:
            return theirs
        if not self.feed.partial or any(key.casefold() == column.name.casefold() for key in self.keys):
            return mine
        return f"CASE WHEN {_RESETS} = 0 AND {mine} IS NULL THEN {theirs} ELSE {mine} END"

    def _differs(self) -> str:
        columns = compared(self.settings, self.payload)
        parts = [differs(c, self._value(c), self.held.get(c.name, "NULL")) for c in columns]
        return "(" + " OR ".join(parts) + ")" if parts else "FALSE"

    def _batch_labels(self) -> str:
        label = f"""
            CASE WHEN {_TRUNCATES} = 1 OR {_STALE} = 1 OR {_RANK} > 1 THEN '{Label.SKIP}'
                 WHEN {self._conflicts()} THEN '{Label.CONFLICT}'
                 WHEN {_DELETES} = 1 THEN
                   CASE WHEN {_PRESENT} IS NULL THEN '{Label.SKIP}' ELSE '{Label.DELETE}' END
                 WHEN {_PRESENT} IS NULL THEN '{Label.INSERT}'
                 WHEN {self._differs()} THEN '{Label.UPDATE}'
                 ELSE '{Label.UNCHANGED}' END
        """
        values = ", ".join(f"{self._value(column)} AS {name(column.name)}" for column in self.written)
        return f"""
            SELECT {values}, {label} AS {name(LABEL)}, TRUE AS {name(FROM_BATCH)}
            FROM {self._events_to_apply()}
        """

    def _cut_labels(self) -> str:
        """Rows that a truncate removes, unless a later event of the batch speaks for their key."""
        values = ", ".join(
            f"{name(c.name, 'c') if in_table(self.current, c.name) else 'NULL'} AS {name(c.name)}"
            for c in self.written
        )
        before = older(self.held_sequence, "c", "t", or_equal=True)
        return f"""
            SELECT {values}, '{Label.DELETE}' AS {name(LABEL)}, FALSE AS {name(FROM_BATCH)}
            FROM {name(CURRENT)} AS c JOIN last_cut AS t ON {before}
            LEFT JOIN (SELECT DISTINCT {names(self.keys)}, 1 AS {_PRESENT} FROM live
                       WHERE {_STALE} = 0 AND {_TRUNCATES} = 0) AS w ON {same_key(self.keys, "w", "c")}
            WHERE w.{_PRESENT} IS NULL
        """


def _carried(column: Column) -> str:
    """What a delete says of its row is over with it."""
    return f"CASE WHEN {_DELETES} = 1 THEN NULL ELSE {name(column.name)} END"


def merge_changes(
    settings: MergeSettings,
    given: Sequence[Column],
    written: Sequence[Column],
    current: TableShape | None,
    as_of: datetime,
) -> Merge:
    assert settings.cdc is not None  # noqa: S101
    feed = settings.cdc
    changes = _Changes(settings, feed, given, written, current)
    refusals = []
    if changes.sequence:
        refusals.append(replace(equal_sequences(settings, feed, given), shows_as=Label.SKIP))
    if changes.held_sequence:
        refusals.append(
            Refusal(
                parse(changes.conflicts()),
                f"a change differs from the table's row but has the same {', '.join(feed.sequence_by)}",
                "add a column to cdc.sequence_by that tells them apart, or repair the feed",
                shows_as=Label.CONFLICT,
            )
        )
    return Merge(
        match=settings.unique_key,
        labels=parse(changes.query()),
        duplicates=duplicates_of(settings.unique_key, written, current, settings, feed.sequence_by),
        refusals=tuple(refusals),
        tombstones=tombstones_of(settings, feed, given, feed.sequence_by, as_of)
        if changes.remembers
        else None,
        within=() if changes.cuts else settings.unique_key,
        glance=None if feed.partial else glance_of(settings, given, written, current, changes.sequence),
    )
