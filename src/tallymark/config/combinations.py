"""Combinations of keys that are valid alone but not together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallymark.config.pipeline_file import CdcConfig, Materialized, PipelineConfig
from tallymark.config.query_files import Language, Transform
from tallymark.config.yaml_file import KeyPath
from tallymark.model.settings import Strategy

_HISTORY_KEYS = (
    "scd_valid_from",
    "scd_valid_to",
    "scd_current_flag",
    "scd_effective_from",
    "scd_close_absent",
)
# Strategies that can replace rows without comparing them first. (A change feed must compare: it refuses equal
# sequences with different contents.)
_COMPARING = (
    Strategy.UPDATE,
    Strategy.UPSERT,
    Strategy.INCREMENTAL,
    Strategy.DEDUPLICATE,
    Strategy.FULL_MERGE,
)


@dataclass(frozen=True)
class Fault:
    path: KeyPath
    message: str
    hint: str


def faults(config: PipelineConfig, transform: Transform | None = None) -> Iterator[Fault]:
    yield from _keys_without_use(config)
    if transform is not None:
        yield from _only_for_files(config)
    if config.materialized is Materialized.VIEW:
        yield from _view(config, transform)
    if keeps_history(config):
        yield from _history_columns(config)
    if config.cdc is not None and config.merge_strategy is Strategy.CDC:
        yield from _feed(config, config.cdc)


def keeps_history(config: PipelineConfig) -> bool:
    if config.merge_strategy is Strategy.CDC:
        return config.cdc is not None and config.cdc.history == "scd2"
    return config.merge_strategy is Strategy.SCD2


def _keys_without_use(config: PipelineConfig) -> Iterator[Fault]:
    strategy = config.merge_strategy
    if config.cdc is not None and strategy is not Strategy.CDC:
        yield Fault(
            ("cdc",),
            f"applies only to merge_strategy cdc; this pipeline has {strategy}",
            "set merge_strategy: cdc, or remove cdc",
        )
    if not config.skip_unchanged:
        yield from _nothing_compared(config)
    if not keeps_history(config):
        for key in _HISTORY_KEYS:
            if key in config.model_fields_set:
                yield Fault(
                    (key,),
                    f"applies only to a history of versions; this pipeline has merge_strategy {strategy}"
                    + (" without history" if strategy is Strategy.CDC else ""),
                    "set cdc.history: scd2, or remove it"
                    if strategy is Strategy.CDC
                    else "set merge_strategy: scd2, or remove it",
                )
    elif config.scd_close_absent and strategy is Strategy.CDC:
        yield Fault(
            ("scd_close_absent",),
            "a change feed does not hold every key, so an absent one means nothing",
            "remove it: a delete in the feed closes the version",
        )


def _nothing_compared(config: PipelineConfig) -> Iterator[Fault]:
    at: KeyPath = ("skip_unchanged",)
    if config.merge_strategy not in _COMPARING:
        yield Fault(
            at,
            f"false applies only to {', '.join(_COMPARING)}; this pipeline has {config.merge_strategy}",
            "remove it",
        )
    elif config.compare_columns:
        yield Fault(at, "false turns comparing off, but compare_columns is set", "remove one of them")


def _only_for_files(config: PipelineConfig) -> Iterator[Fault]:
    if "batch" in config.model_fields_set:
        yield Fault(
            ("batch",),
            "limits the files of one commit, but the result of a transform is always one batch",
            "remove it",
        )


_NOT_FOR_A_VIEW = {
    "columns": "a view returns the columns of its query unchanged",
    "archive_landing_zones": "a view reads its files again each time, so they must stay",
    "quality": "a view keeps no rows, so there is no load to check",
}
_FOR_ROWS_TO_MERGE = (
    "unique_key",
    "watermark_column",
    "partition_column",
    "dedup_order_by",
    "compare_columns",
)


def _view(config: PipelineConfig, transform: Transform | None) -> Iterator[Fault]:
    at: KeyPath = ("materialized",)
    if transform is None or transform.language is not Language.SQL:
        yield Fault(at, "a view needs a pipeline.sql, and this pipeline has none", "remove it")
        return
    if config.merge_strategy is not Strategy.FULL_REFRESH:
        yield Fault(
            at,
            f"a view keeps no rows, so merge_strategy {config.merge_strategy} has nothing to merge into",
            "remove merge_strategy, or set materialized: table",
        )
    else:
        for key in _FOR_ROWS_TO_MERGE:
            if getattr(config, key):
                hint = "remove it, or set materialized: table"
                yield Fault((key,), "applies to rows that are merged into a table; a view keeps none", hint)
    for key, reason in _NOT_FOR_A_VIEW.items():
        if key in config.model_fields_set and getattr(config, key):
            yield Fault((key,), reason, "remove it, or set materialized: table")


def _history_columns(config: PipelineConfig) -> Iterator[Fault]:
    keys = {name.casefold() for name in config.unique_key}
    taken: dict[str, str] = {}
    for key in ("scd_valid_from", "scd_valid_to", "scd_current_flag", "scd_effective_from"):
        name = getattr(config, key)
        if name is None:
            continue
        if name.casefold() in keys:
            yield Fault(
                (key,),
                f"{name} is in unique_key, but differs between the versions of a key",
                "name another column, or take it out of unique_key",
            )
        other = taken.setdefault(name.casefold(), key)
        # The time of a change may itself be the column that says from when a version holds.
        if other != key and (other, key) != ("scd_valid_from", "scd_effective_from"):
            at = key if key in config.model_fields_set else other
            pair = {other, key} - {at}
            yield Fault((at,), f"{name} is also the name of {pair.pop()}", "give each its own column")


def _feed(config: PipelineConfig, feed: CdcConfig) -> Iterator[Fault]:
    keys = {name.casefold() for name in config.unique_key}
    ordering = {name.casefold() for name in feed.settings().sequence_by}
    operation = feed.operation_column
    if operation.casefold() in keys | ordering:
        where = "unique_key" if operation.casefold() in keys else "sequence_by"
        yield Fault(
            ("cdc", "operation_column"),
            f"{operation} is also in {where}",
            "name the column that says insert, update or delete, and nothing else",
        )
    if shared := [name for name in feed.settings().sequence_by if name.casefold() in keys]:
        yield Fault(
            ("cdc", "sequence_by"),
            f"{shared[0]} is in unique_key, so it cannot order the changes of a key",
            "name a column that grows with every change, such as a log position",
        )
    if len(ordering) < len(feed.sequence_by):
        yield Fault(
            ("cdc", "sequence_by"),
            "two paths end in the same name and would become the same column",
            "keep one of them",
        )
    if feed.envelope and feed.operations:
        yield Fault(
            ("cdc", "operations"),
            f"a {feed.envelope} envelope has its own codes: c, r, u, d and t",
            "remove operations, or envelope if the files are flat",
        )
