"""What each strategy needs, what it falls back to, and which deletes it may do unasked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallymark.errors import PlanError
from tallymark.model.settings import MergeSettings, Strategy

# Strategies for which two files in one batch mean something else than one after the other.
_ONE_FILE_IS_A_DELIVERY = frozenset(
    {Strategy.FULL_REFRESH, Strategy.FULL_MERGE, Strategy.SNAPSHOT, Strategy.DELETE_INSERT}
)

# Strategies whose result does not depend on the order of the batches.
ORDER_FREE = frozenset({Strategy.APPEND_ONLY})

NEEDS: dict[Strategy, tuple[str, ...]] = {
    Strategy.FULL_REFRESH: (),
    Strategy.APPEND_ONLY: (),
    Strategy.INSERT: ("unique_key",),
    Strategy.UPDATE: ("unique_key",),
    Strategy.UPSERT: ("unique_key",),
    Strategy.INCREMENTAL: ("unique_key",),
    Strategy.DEDUPLICATE: ("unique_key",),
    Strategy.FULL_MERGE: ("unique_key",),
    Strategy.DELETE_INSERT: ("unique_key",),
    Strategy.SNAPSHOT: ("partition_column",),
    Strategy.SCD2: ("unique_key",),
    Strategy.CDC: ("unique_key", "cdc"),
}

DEFAULT_DELETE_GUARD = 0.5


def one_file_is_a_delivery(settings: MergeSettings) -> bool:
    """Whether each file gets a batch of its own, unless the user says how many files belong together."""
    by_time_of_load = settings.strategy is Strategy.SCD2 and (
        settings.scd2.effective_from is None or settings.scd2.close_absent
    )
    return by_time_of_load or settings.strategy in _ONE_FILE_IS_A_DELIVERY


@dataclass(frozen=True)
class Effective:
    """The settings that count, after a missing field made the strategy fall back."""

    settings: MergeSettings
    max_delete_fraction: float | None
    warnings: tuple[str, ...] = ()


def effective(settings: MergeSettings) -> Effective:
    strategy = settings.strategy
    missing = [field for field in NEEDS[strategy] if not getattr(settings, field)]
    if missing:
        return _fall_back(settings, missing)
    guard = settings.max_delete_fraction
    if guard is None and strategy is Strategy.FULL_MERGE:
        guard = DEFAULT_DELETE_GUARD
    return Effective(settings, guard)


def _fall_back(settings: MergeSettings, missing: list[str]) -> Effective:
    """Under the delete guard, so that a forgotten field never wipes a table that has rows."""
    what = " and ".join(missing)
    if settings.strict:
        raise PlanError(
            f"merge_strategy {settings.strategy} needs {what}, and strict is on",
            hint=f"add {what} to the pipeline's config.yaml",
        )
    guard = settings.max_delete_fraction
    return Effective(
        replace(settings, strategy=Strategy.FULL_REFRESH),
        DEFAULT_DELETE_GUARD if guard is None else guard,
        (f"merge_strategy {settings.strategy} needs {what}: falls back to full_refresh",),
    )
