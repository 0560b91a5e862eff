"""What a history adds to a table: from when to when each version holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallymark.errors import PlanError
from tallymark.model.settings import MergeSettings, Strategy
from tallymark.model.table import Column, find_column

_TIMES = ("timestamp", "timestamp_ntz", "date", "bigint", "int")


@dataclass(frozen=True)
class History:
    valid_from: str
    valid_to: str
    current_flag: str | None
    effective: str | None  # the batch's column with the time of a change; None: the batch's as_of

    @property
    def told(self) -> str:
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
    """A change feed without a time of its own is ordered by its sequence, if that is one column."""
    scd2 = settings.scd2
    effective = scd2.effective_from
    if effective is None and settings.strategy is Strategy.CDC and settings.cdc is not None:
        sequence = settings.cdc.sequence_by
        if len(sequence) > 1:
            raise PlanError(
                "cdc.history: sequence_by has several columns, so it cannot be the time of a version",
                hint="name the column with the time of a change in scd_effective_from",
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
        if not time_type.startswith((*_TIMES, "decimal")):
            raise PlanError(
                f"scd_effective_from: {history.effective} has the type {time_type}, which is not a time",
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
                f"the batch has a column {given.name}, which a history keeps for itself",
                hint="rename one of them: by a rule under `columns`, or by scd_valid_from, scd_valid_to, "
                "scd_current_flag",
            )
    return [column for column in own if column.name.casefold() != is_effective]
