"""Strategies that keep a history: `scd2`, and `cdc` with `history: scd2`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tallymark.errors import Unsupported
from tallymark.model.plan import Merge, Refusal, Tombstones
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column, TableShape
from tallymark.strategies.duplicates import duplicates_of
from tallymark.strategies.feed import equal_sequences, tombstones_of
from tallymark.strategies.history import history_of
from tallymark.strategies.keyed import tied_rows
from tallymark.strategies.sql import parse
from tallymark.strategies.timeline import Timeline


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
            "cdc: partial updates cannot be kept as a history",
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
        within=() if line.sees_every_key else line.keys,
    )


def _tombstones(line: Timeline, as_of: datetime) -> Tombstones | None:
    """Without times of its own, a feed is ordered by arrival: then nothing comes late."""
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
