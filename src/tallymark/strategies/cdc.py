"""Change feeds without history: the table holds the last change of each key, by sequence.

1. events   what each row of the batch does
2. last_cut the last truncate of the batch; past_cut the last one among the tombstones
3. live     each event beside the table's row of its key, and whether it is stale: older than that row, than a
            tombstone, than a truncate
4. folded   with partial updates, values that an update does not carry come from the change before it
5. labels   the last live event of each key against the table's row

The functions at the end read events of any change feed; histories (`scd2.py`) use them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

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
    Tombstones,
)
from tallymark.model.settings import CdcSettings, MergeSettings, Operation
from tallymark.model.table import Column, TableShape, find_column, is_provenance
from tallymark.strategies.columns import (
    comparable,
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
    text,
)
from tallymark.strategies.keyed import duplicates_of

_STALE, _RANK, _RESETS, _PRESENT = '"_tm_stale"', '"_tm_rank"', '"_tm_resets"', '"_tm_present"'
_CUT = '"_tm_cut"'
_DELETES, _INSERTS, _TRUNCATES = '"_tm_deletes"', '"_tm_inserts"', '"_tm_truncates"'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_A_DAY = timedelta(days=1)


@dataclass(frozen=True)
class _Changes:
    """The label query; the steps are those of the module's docstring."""

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
        """The sequence columns of the table; empty if it lacks one of them, and then no event is stale."""
        every = all(in_table(self.current, column.name) for column in self.sequence)
        return self.sequence if every else []

    @property
    def held(self) -> dict[str, str]:
        """The names under which the steps carry the values of the table's row, by column."""
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
        """What an update may leave out: everything but its sequence, which every event has."""
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
        """Keys whose event has the same sequence as the table's row, but other values."""
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
        """Whether a truncate of the batch removed the table's row of the key: then a partial update after it
        has no values to start from."""
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
        """Numbers the values of each column; an event without a value has the number of the last value."""
        counted = ", ".join(
            f"COUNT({_carried(c)}) OVER ({self._since_reset()} ORDER BY {oldest_first(self.order)} "
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
            f"FIRST_VALUE({_carried(c)}) OVER ({self._since_reset()}, {name(f'_tm_n{at}')} "
            f"ORDER BY {oldest_first(self.order)}) AS {name(c.name)}"
            for at, c in enumerate(self.carried)
        ]
        return f"SELECT {', '.join([*map(name, kept), *flags, *folded])} FROM counted"

    def _since_reset(self) -> str:
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
        """Rows that a truncate removes, unless a later event of the batch has their key."""
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
    """Values on delete events are discarded."""
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
                f"a change has the same {', '.join(feed.sequence_by)} as the table's row, but other values",
                "add a column to cdc.sequence_by that orders them, or repair the feed",
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
    )


def is_kind(feed: CdcSettings, *operations: Operation, table: str = "") -> str:
    """Codes are compared ignoring case and surrounding blanks."""
    codes = feed.codes_of(*operations)
    if not codes:
        return "FALSE"
    return f"LOWER(TRIM({name(feed.operation_column, table)})) IN ({', '.join(map(text, codes))})"


def has_truncate(feed: CdcSettings) -> bool:
    return bool(feed.codes_of(Operation.TRUNCATE))


def tombstones_of(
    settings: MergeSettings, feed: CdcSettings, given: Sequence[Column], times: Sequence[str], as_of: datetime
) -> Tombstones:
    """Every delete leaves a tombstone, also if it finds no row; a truncate leaves one with NULL keys."""
    keys = resolved(given, settings.unique_key)
    columns = [*keys, *resolved(given, times)]
    new = f"""
        SELECT DISTINCT {names(c.name for c in columns)} FROM {name(INCOMING)}
        WHERE {is_kind(feed, Operation.DELETE)}
    """
    if has_truncate(feed):
        key_names = {key.name for key in keys}
        values = ", ".join(
            f"CAST(NULL AS {c.type}) AS {name(c.name)}" if c.name in key_names else name(c.name)
            for c in columns
        )
        new += f" UNION ALL SELECT {values} FROM {name(INCOMING)} WHERE {is_kind(feed, Operation.TRUNCATE)}"
    return Tombstones(tuple(columns), parse(new), forget_before(as_of, feed.tombstone_days))


def forget_before(as_of: datetime, days: float) -> datetime:
    """Tombstones are kept for `days`, or up to 1/32 longer: the limit is rounded, so that many loads share it
    and Spark does not compile a new query for each."""
    retention = timedelta(days=days)
    since = as_of - retention - _EPOCH
    return _EPOCH + since - since % (retention / 32) if retention >= _A_DAY else _EPOCH + since


def equal_sequences(settings: MergeSettings, feed: CdcSettings, given: Sequence[Column]) -> Refusal:
    """Refuses events of one key with the same sequence and different values: no order of them is right."""
    keyed = [*settings.unique_key, *(column.name for column in resolved(given, feed.sequence_by))]
    payload = [
        c
        for c in given
        if not is_provenance(c.name) and find_column(resolved(given, keyed), c.name) is None
        and c.name.casefold() != feed.operation_column.casefold()
    ]  # fmt: skip
    deletes = is_kind(feed, Operation.DELETE)
    contents = [f"{name(column)}" for column in keyed]
    contents.append(f"CASE WHEN {deletes} THEN 1 ELSE 0 END AS {name('_tm_deletes')}")
    contents += [
        f"CASE WHEN {deletes} THEN NULL ELSE {comparable(c, name(c.name))} END AS {name(c.name)}"
        for c in payload
    ]
    found = f"""
        SELECT DISTINCT {names(settings.unique_key)} FROM (
          SELECT {names(keyed)} FROM (
            SELECT DISTINCT {", ".join(contents)} FROM {name(INCOMING)}
            WHERE NOT {is_kind(feed, Operation.TRUNCATE)}
          ) AS contents
          GROUP BY {names(keyed)} HAVING COUNT(*) > 1
        ) AS conflicts
    """
    return Refusal(
        parse(found),
        f"changes of one key have the same {', '.join(feed.sequence_by)}, but different values",
        "add a column to cdc.sequence_by that orders them, or repair the feed",
        among=tuple(keyed),
    )
