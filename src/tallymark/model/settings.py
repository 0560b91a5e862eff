"""How rows are merged: the declared strategy with its fields, free of files and destinations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Strategy(StrEnum):
    FULL_REFRESH = "full_refresh"
    APPEND_ONLY = "append_only"
    INSERT = "insert"
    UPDATE = "update"
    UPSERT = "upsert"
    INCREMENTAL = "incremental"
    DEDUPLICATE = "deduplicate"
    FULL_MERGE = "full_merge"
    DELETE_INSERT = "delete_insert"
    SNAPSHOT = "snapshot"
    SCD2 = "scd2"
    CDC = "cdc"


class SchemaEvolution(StrEnum):
    ADD = "add"
    IGNORE = "ignore"
    FAIL = "fail"


class OnTargetDuplicates(StrEnum):
    REPAIR = "repair"
    FAIL = "fail"


@dataclass(frozen=True)
class MergeSettings:
    strategy: Strategy
    unique_key: tuple[str, ...] = ()
    watermark_column: str | None = None
    partition_column: str | None = None
    dedup_order_by: tuple[str, ...] = ()
    compare_columns: tuple[str, ...] = ()  # empty: all but key and provenance
    schema_evolution: SchemaEvolution = SchemaEvolution.ADD
    on_target_duplicates: OnTargetDuplicates = OnTargetDuplicates.REPAIR
    max_delete_fraction: float | None = None  # None: the strategy's own default
    strict: bool = False
