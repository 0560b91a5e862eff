"""Histories: `scd2`, and `cdc` with `history: scd2`. A version of a key holds from valid_from to valid_to.

Each key has one timeline of events: rows and ends, from the table and from the batch, in any order of
arrival. The label query merges the batch's events into the table's timeline:

1. batch      events of the batch; the last of several at one time counts
2. affected   keys whose timeline may change; `spans` are their versions in the table
3. events     starts and ends from table, batch and tombstones; at one time the batch wins over the table,
              unless the table's event has a higher sequence, and a start wins over an end
4. compared   a row that repeats the version before it starts no version, if one of the two is new
5. kept       each version ends where the next event is
6. labels     the difference to what the table holds

So step 5 guarantees that there is no gap, no overlap and at most one open version, whatever the order of
the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tallymark.errors import PlanError, Unsupported
from tallymark.model.plan import (
    AS_OF,
    CURRENT,
    FROM_BATCH,
    INCOMING,
    LABEL,
    POSITION,
    TOMBSTONES,
    Label,
    Merge,
    Refusal,
    Tombstones,
)
from tallymark.model.settings import CdcSettings, MergeSettings, Operation, Strategy
from tallymark.model.table import Column, TableShape, find_column
from tallymark.strategies.cdc import equal_sequences, has_truncate, is_kind, tombstones_of
from tallymark.strategies.columns import (
    any_differs,
    compared,
    differs,
    in_table,
    name,
    names,
    ordered,
    parse,
    rank,
    resolved,
    same_key,
)
from tallymark.strategies.keyed import declared_order, duplicates_of, tied_rows

_T, _END, _CLOSES, _RANK = '"_tm_t"', '"_tm_end"', '"_tm_closes"', '"_tm_rank"'
_SOURCE, _BASE, _REPEATS = '"_tm_source"', '"_tm_base"', '"_tm_repeats"'
_BATCH, _TOMBSTONE, _STARTED, _ENDED = range(4)  # where an event comes from; at one time the lowest wins
_EFFECTIVE_TYPES = ("timestamp", "timestamp_ntz", "date", "bigint", "int", "decimal")


@dataclass(frozen=True)
class History:
    """The columns that a history adds to a table: from when to when each version holds."""

    valid_from: str
    valid_to: str
    current_flag: str | None
    effective: str | None  # the batch's column with the time of a change; None: the batch's as_of

    @property
    def time_in_words(self) -> str:
        return self.effective or "the time of the load"

    @property
    def own_columns(self) -> tuple[str, ...]:
        flag = (self.current_flag,) if self.current_flag else ()
        return (self.valid_from, self.valid_to, *flag)


def keeps_history(settings: MergeSettings) -> bool:
    return settings.strategy is Strategy.SCD2 or (
        settings.strategy is Strategy.CDC and settings.cdc is not None and settings.cdc.history
    )


def history_of(settings: MergeSettings) -> History:
    """A change feed without `scd_effective_from` takes its sequence as the time, if that is one column."""
    scd2 = settings.scd2
    effective = scd2.effective_from
    if effective is None and settings.strategy is Strategy.CDC and settings.cdc is not None:
        sequence = settings.cdc.sequence_by
        if len(sequence) > 1:
            raise PlanError(
                "cdc.history: sequence_by has several columns, so it cannot be the time of a version",
                hint="set scd_effective_from to the column with the time of a change",
            )
        effective = sequence[0] if sequence else None
    return History(scd2.valid_from, scd2.valid_to, scd2.current_flag, effective)


def history_columns(settings: MergeSettings, incoming: Sequence[Column]) -> list[Column]:
    """The columns that the load adds to those of the batch."""
    if not keeps_history(settings):
        return []
    history = history_of(settings)
    time_type = "timestamp"
    if history.effective is not None:
        found = find_column(incoming, history.effective)
        time_type = found.type if found else time_type
        if not time_type.startswith(_EFFECTIVE_TYPES):
            raise PlanError(
                f"scd_effective_from: {history.effective} is of type {time_type}, which is not a time",
                hint=f"give {history.effective} the type timestamp or date in `columns`",
            )
    if settings.scd2.close_absent and time_type != "timestamp":
        raise PlanError(
            f"scd_close_absent closes at the time of the load, but {history.effective} is a {time_type}",
            hint=f"give {history.effective} the type timestamp in `columns`, or leave scd_effective_from out",
        )
    own = [Column(history.valid_from, time_type), Column(history.valid_to, time_type)]
    if history.current_flag:
        own.append(Column(history.current_flag, "boolean"))
    is_effective = (history.effective or "").casefold()
    for column in own:
        given = find_column(incoming, column.name)
        if given is not None and column.name.casefold() != is_effective:
            raise PlanError(
                f"the batch has a column {given.name}, a name that the history needs for its own column",
                hint="rename the batch's column by a rule under `columns`, or the history's by "
                "scd_valid_from, scd_valid_to or scd_current_flag",
            )
    return [column for column in own if column.name.casefold() != is_effective]


def merge_versions(
    settings: MergeSettings,
    given: Sequence[Column],
    written: Sequence[Column],
    current: TableShape | None,
    as_of: datetime,
) -> Merge:
    feed = settings.cdc if settings.strategy is Strategy.CDC else None
    if feed is not None and feed.partial:
        raise Unsupported(
            "cdc: a feed with partial updates cannot be kept as a history",
            hint="set partial: false and deliver whole rows, or history: none",
        )
    line = Timeline(settings, history_of(settings), feed, given, written, current)
    match = (*settings.unique_key, line.history.valid_from)
    return Merge(
        match=match,
        labels=parse(line.query()),
        duplicates=duplicates_of(match, written, current, settings, ()),
        refusals=_refusals(line),
        tombstones=_tombstones(line, as_of),
    )


def _tombstones(line: Timeline, as_of: datetime) -> Tombstones | None:
    """None for a feed without times: it is ordered by arrival, so nothing comes late."""
    if line.feed is None or line.history.effective is None:
        return None
    times = dict.fromkeys([*line.feed.sequence_by, line.history.effective])
    return tombstones_of(line.settings, line.feed, line.given, list(times), as_of)


def _refusals(line: Timeline) -> tuple[Refusal, ...]:
    if line.feed:
        return (equal_sequences(line.settings, line.feed, line.given),) if line.sequence else ()
    if line.history.effective is None:
        return ()
    return (tied_rows((*line.keys, line.history.effective), line.declared_order(), line.given),)


@dataclass(frozen=True)
class Timeline:
    """The label query; the steps are those of the module's docstring."""

    settings: MergeSettings
    history: History
    feed: CdcSettings | None
    given: Sequence[Column]
    written: Sequence[Column]
    current: TableShape | None

    @property
    def keys(self) -> tuple[str, ...]:
        return self.settings.unique_key

    @property
    def sequence(self) -> list[Column]:
        return resolved(self.given, self.feed.sequence_by) if self.feed else []

    @property
    def tracked(self) -> list[Column]:
        left_out = [
            *self.history.own_columns,
            *([self.history.effective] if self.history.effective else []),
            *([*self.feed.sequence_by, self.feed.operation_column] if self.feed else []),
        ]
        return compared(self.settings, self.given, left_out)

    @property
    def _closes_absent(self) -> bool:
        return self.settings.strategy is Strategy.SCD2 and self.settings.scd2.close_absent

    @property
    def _cuts(self) -> bool:
        return self.feed is not None and has_truncate(self.feed)

    @property
    def time(self) -> str:
        return f":{AS_OF}" if self.history.effective is None else name(self.history.effective)

    def query(self) -> str:
        parts = {
            "batch": self._batch(),
            "affected": self._affected(),
            "spans": f"""SELECT c.* FROM {name(CURRENT)} AS c
                         JOIN affected AS a ON {same_key(self.keys, "c", "a")}""",
            "events": self._events(),
            "chosen": self._chosen(),
            "compared": self._compared(),
            "kept": f"""SELECT *, LEAD({_T}) OVER (PARTITION BY {names(self.keys)} ORDER BY {_T}) AS {_END}
                        FROM compared WHERE {_REPEATS} = 0""",
            "changes": self._changes(),
        }
        steps = ", ".join(f"{step} AS ({text})" for step, text in parts.items())
        labels = [self._batch_labels(), self._table_labels()]
        if self._cuts:
            nothing = ", ".join(f"NULL AS {name(column.name)}" for column in self.written)
            labels.append(f"""
                SELECT {nothing}, '{Label.SKIP}' AS {name(LABEL)}, TRUE AS {name(FROM_BATCH)}
                FROM {name(INCOMING)} WHERE {self._truncates()}
            """)
        return f"WITH {steps} {' UNION ALL '.join(labels)}"

    # 1. batch

    def _batch(self) -> str:
        order = [*self.sequence, *self.declared_order(), *POSITION]
        columns = self.keys if self.history.effective is None else (*self.keys, self.history.effective)
        closes = f"CASE WHEN {is_kind(self.feed, Operation.DELETE)} THEN 1 ELSE 0 END" if self.feed else "0"
        rows = f"WHERE NOT {self._truncates()}" if self._cuts else ""
        return f"""
            SELECT *, {self.time} AS {_T}, {closes} AS {_CLOSES}, {rank(columns, order)} AS {_RANK}
            FROM {name(INCOMING)} {rows}
        """

    def declared_order(self) -> list[Column]:
        return [] if self.feed else resolved(self.given, declared_order(self.settings))

    def _truncates(self) -> str:
        assert self.feed is not None  # noqa: S101
        return is_kind(self.feed, Operation.TRUNCATE)

    # 2. affected

    def _affected(self) -> str:
        parts = [f"SELECT {names(self.keys)} FROM batch"]
        if self._closes_absent:
            parts.append(f"SELECT {names(self.keys)} FROM {name(CURRENT)} WHERE {self._open()}")
        if self._cuts:
            truncated = f"EXISTS (SELECT 1 FROM {name(INCOMING)} WHERE {self._truncates()})"
            parts.append(f"SELECT {names(self.keys)} FROM {name(CURRENT)} WHERE {truncated}")
        return " UNION ".join(parts) if len(parts) > 1 else parts[0].replace("SELECT", "SELECT DISTINCT", 1)

    def _open(self) -> str:
        return f"{name(self.history.valid_to)} IS NULL AND {name(self.history.valid_from)} < :{AS_OF}"

    # 3. events

    def _events(self) -> str:
        sequence = [column.name for column in self.sequence]
        tracked = [column.name for column in self.tracked]
        held = [n if in_table(self.current, n) else None for n in [*sequence, *tracked]]
        parts = [
            self._event(_BATCH, _T, _CLOSES, "batch", [*sequence, *tracked], f"{_RANK} = 1"),
            self._event(_STARTED, name(self.history.valid_from), "0", "spans", held),
            self._event(
                _ENDED,
                name(self.history.valid_to),
                "1",
                "spans",
                [None] * len(held),
                f"{name(self.history.valid_to)} IS NOT NULL",
            ),
        ]
        if self.feed:
            parts += self._from_tombstones(self.feed)
        elif self.settings.scd2.close_absent:
            absent = f"""{self._open()} AND NOT EXISTS (
                SELECT 1 FROM batch AS b WHERE {same_key(self.keys, "b", "spans")})"""
            parts.append(self._event(_BATCH, f":{AS_OF}", "1", "spans", [None] * len(held), absent))
        return " UNION ALL ".join(parts)

    def _event(
        self,
        source: int,
        time: str,
        closes: str,
        relation: str,
        values: Sequence[str | None],
        where: str = "TRUE",
        keys_of: str = "",
    ) -> str:
        named = [column.name for column in [*self.sequence, *self.tracked]]
        contents = "".join(
            f", {'NULL' if value is None else name(value)} AS {name(f'_tm_v{at}')}"
            for at, value in enumerate(values)
        )
        assert len(named) == len(values)  # noqa: S101
        return f"""
            SELECT {names(self.keys, keys_of)}, {time} AS {_T}, {source} AS {_SOURCE},
                   {closes} AS {_CLOSES}{contents}
            FROM {relation} WHERE {where}
        """

    def _from_tombstones(self, feed: CdcSettings) -> list[str]:
        """Deletes that arrived before the rows that they close, and truncates, which close every key."""
        values: list[str | None] = [*(c.name for c in self.sequence), *([None] * len(self.tracked))]
        join = f"{name(TOMBSTONES)} AS s JOIN affected AS a ON"
        own = f"{join} {same_key(self.keys, 's', 'a')}"
        parts = []
        if self.history.effective is not None:
            parts.append(self._event(_TOMBSTONE, self.time, "1", own, values, keys_of="a"))
        if has_truncate(feed):
            every = " AND ".join(f"{name(key, 's')} IS NULL" for key in self.keys)
            if self.history.effective is not None:
                parts.append(self._event(_TOMBSTONE, self.time, "1", f"{join} {every}", values, keys_of="a"))
            now = f"{name(INCOMING)} AS s CROSS JOIN affected AS a"
            truncates = is_kind(feed, Operation.TRUNCATE, table="s")
            time = f":{AS_OF}" if self.history.effective is None else name(self.history.effective, "s")
            parts.append(self._event(_BATCH, time, "1", now, values, truncates, keys_of="a"))
        return parts

    def _chosen(self) -> str:
        by_sequence = "".join(
            f"{ordered(column, name(f'_tm_v{at}'))} DESC NULLS LAST, "
            for at, column in enumerate(self.sequence)
        )
        return f"""
            SELECT *,
              ROW_NUMBER() OVER (
                PARTITION BY {names(self.keys)}, {_T} ORDER BY {by_sequence}{_SOURCE}, {_CLOSES}
              ) AS {_RANK},
              MAX(CASE WHEN {_SOURCE} = {_STARTED} THEN {_T} END) OVER (
                PARTITION BY {names(self.keys)} ORDER BY {_T}
              ) AS {_BASE}
            FROM events
        """

    # 4. compared

    def _compared(self) -> str:
        over = f"OVER (PARTITION BY {names(self.keys)} ORDER BY {_T})"
        first = len(self.sequence)
        same = "".join(
            f" AND NOT ({differs(column, value, f'LAG({value}) {over}')})"
            for value, column in (
                (name(f"_tm_v{at}"), column) for at, column in enumerate(self.tracked, start=first)
            )
        )
        return f"""
            SELECT *, CASE WHEN {_CLOSES} = 0 AND LAG({_CLOSES}) {over} = 0
                AND ({_SOURCE} = {_BATCH} OR LAG({_SOURCE}) {over} = {_BATCH}){same} THEN 1 ELSE 0 END
              AS {_REPEATS}
            FROM chosen WHERE {_RANK} = 1
        """

    # 6. labels

    def _changes(self) -> str:
        """The label of each version of the table that no row of the batch replaces. A version that a delete
        of the batch closes is counted as the row of that delete."""
        valid_from, valid_to = name(self.history.valid_from, "c"), name(self.history.valid_to, "c")
        label = f"""
            CASE WHEN v.{_T} IS NULL OR v.{_CLOSES} = 1 THEN '{Label.DELETE}'
                 WHEN v.{_SOURCE} = {_BATCH} AND {self._replaces("b")} THEN NULL
                 WHEN v.{_END} IS DISTINCT FROM {valid_to} THEN '{Label.CLOSE}' END
        """
        return f"""
            SELECT c.*, v.{_END} AS {_END}, {label} AS {name(LABEL)},
                   CASE WHEN d.{_T} IS NULL THEN FALSE ELSE TRUE END AS {name(FROM_BATCH)}
            FROM spans AS c
            LEFT JOIN kept AS v ON {same_key(self.keys, "v", "c")} AND v.{_T} = {valid_from}
            LEFT JOIN batch AS b
              ON {same_key(self.keys, "b", "c")} AND b.{_T} = {valid_from} AND b.{_RANK} = 1
            LEFT JOIN batch AS d
              ON {same_key(self.keys, "d", "c")} AND d.{_T} = v.{_END} AND d.{_RANK} = 1 AND d.{_CLOSES} = 1
              AND v.{_CLOSES} = 0 AND v.{_END} IS DISTINCT FROM {valid_to}
        """

    def _replaces(self, batch: str) -> str:
        return any_differs(self.tracked, batch, "c", self.current)

    def _table_labels(self) -> str:
        values = []
        for column in self.written:
            if _is(column, self.history.valid_to):
                value = f"CASE WHEN {name(LABEL)} = '{Label.CLOSE}' THEN {_END} ELSE {name(column.name)} END"
            elif _is(column, self.history.current_flag):
                value = f"{_END} IS NULL"
            else:
                value = name(column.name) if in_table(self.current, column.name) else "NULL"
            values.append(f"{value} AS {name(column.name)}")
        return f"""
            SELECT {", ".join(values)}, {name(LABEL)}, {name(FROM_BATCH)}
            FROM changes WHERE {name(LABEL)} IS NOT NULL
        """

    def _batch_labels(self) -> str:
        label = f"""
            CASE WHEN b.{_RANK} > 1 OR w.{_SOURCE} <> {_BATCH} OR b.{_CLOSES} = 1 THEN '{Label.SKIP}'
                 WHEN w.{_REPEATS} = 1 THEN '{Label.UNCHANGED}'
                 WHEN {name(self.history.valid_from, "c")} = b.{_T} THEN
                   CASE WHEN {self._replaces("b")} THEN '{Label.UPDATE}' ELSE '{Label.UNCHANGED}' END
                 ELSE '{Label.INSERT}' END
        """
        values = ", ".join(f"{self._value(column)} AS {name(column.name)}" for column in self.written)
        at = f"{same_key(self.keys, 'w', 'b')} AND w.{_T} = b.{_T} AND b.{_RANK} = 1"
        closed_nothing = f"""
            NOT EXISTS (SELECT 1 FROM changes AS x WHERE {same_key(self.keys, "x", "b")}
              AND x.{_END} = b.{_T} AND x.{name(FROM_BATCH)} AND x.{name(LABEL)} = '{Label.CLOSE}'
              AND b.{_CLOSES} = 1 AND b.{_RANK} = 1)
        """
        return f"""
            SELECT {values}, {label} AS {name(LABEL)}, TRUE AS {name(FROM_BATCH)}
            FROM batch AS b
            LEFT JOIN compared AS w ON {at}
            LEFT JOIN kept AS v ON {at.replace("w.", "v.")}
            LEFT JOIN spans AS c ON {same_key(self.keys, "c", "w")}
              AND {name(self.history.valid_from, "c")} = w.{_BASE}
            WHERE {closed_nothing if self.feed else "TRUE"}
        """

    def _value(self, column: Column) -> str:
        """A column that the batch lacks keeps the value of the version before."""
        if _is(column, self.history.valid_from):
            return f"b.{_T}"
        if _is(column, self.history.valid_to):
            return f"v.{_END}"
        if _is(column, self.history.current_flag):
            return f"v.{_END} IS NULL"
        brought = find_column(self.given, column.name) is not None
        return name(column.name, "b" if brought else "c")


def _is(column: Column, wanted: str | None) -> bool:
    return wanted is not None and column.name.casefold() == wanted.casefold()
