"""Reading the events of a change feed inside a query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tallymark.model.plan import INCOMING, Refusal, Tombstones
from tallymark.model.settings import CdcSettings, MergeSettings, Operation
from tallymark.model.table import Column, find_column, is_provenance
from tallymark.strategies.sql import comparable, name, names, parse, resolved, text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_A_DAY = timedelta(days=1)


def is_kind(feed: CdcSettings, *operations: Operation, table: str = "") -> str:
    """Codes are compared without case and surrounding blanks."""
    codes = feed.codes_of(*operations)
    if not codes:
        return "FALSE"
    return f"LOWER(TRIM({name(feed.operation_column, table)})) IN ({', '.join(map(text, codes))})"


def has_truncate(feed: CdcSettings) -> bool:
    return bool(feed.codes_of(Operation.TRUNCATE))


def tombstones_of(
    settings: MergeSettings, feed: CdcSettings, given: Sequence[Column], times: Sequence[str], as_of: datetime
) -> Tombstones:
    """Every delete is remembered, whether it found its row or not; a truncate with NULL for the keys."""
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
    """Deletes are remembered for that long, or up to 1/32 longer: a moment that many loads have in common
    need not be compiled into the query of each."""
    retention = timedelta(days=days)
    since = as_of - retention - _EPOCH
    return _EPOCH + since - since % (retention / 32) if retention >= _A_DAY else _EPOCH + since


def equal_sequences(settings: MergeSettings, feed: CdcSettings, given: Sequence[Column]) -> Refusal:
    """Events of a key with one sequence number and two contents: no order can be right."""
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
        f"changes of one key differ but have the same {', '.join(feed.sequence_by)}",
        "add a column to cdc.sequence_by that tells them apart, or repair the feed",
        among=tuple(keyed),
    )
