"""How rows are merged: the declared strategy with its fields, free of files and destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


class RepeatedContent(StrEnum):
    """What happens to a file that brings a content again after the table got another one."""

    SKIP = "skip"  # it is recorded, with a warning
    APPLY = "apply"  # a state that returns
    FAIL = "fail"  # it waits for `requeue`


class Operation(StrEnum):
    """What an event of a change feed does."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


@dataclass(frozen=True)
class Scd2Settings:
    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    current_flag: str | None = None
    effective_from: str | None = None  # None: the batch's as_of
    close_absent: bool = False


DEFAULT_CODES: dict[Operation, tuple[str, ...]] = {
    Operation.INSERT: ("i", "insert", "c", "create", "r", "read"),
    Operation.UPDATE: ("u", "update"),
    Operation.DELETE: ("d", "delete"),
}


@dataclass(frozen=True)
class CdcSettings:
    operation_column: str
    sequence_by: tuple[str, ...] = ()
    codes: Mapping[Operation, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_CODES)  # lower case
    partial: bool = False  # an update's NULL means: not carried, keep the table's value
    history: bool = False  # versions are kept, as scd2 keeps them
    tombstone_days: float = 30

    def codes_of(self, *operations: Operation) -> list[str]:
        return [code for operation in operations for code in self.codes.get(operation, ())]


@dataclass(frozen=True)
class EnvelopeSettings:
    """How rows are taken out of Debezium's envelopes."""

    operation_column: str
    sequence_by: tuple[str, ...]  # paths in the envelope, such as source.lsn
    key: tuple[str, ...]  # as its columns are named in the records


@dataclass(frozen=True)
class MergeSettings:
    strategy: Strategy
    unique_key: tuple[str, ...] = ()
    watermark_column: str | None = None
    partition_column: str | None = None
    dedup_order_by: tuple[str, ...] = ()
    compare_columns: tuple[str, ...] = ()  # empty: all but key and provenance
    skip_unchanged: bool = True  # False: rows are not compared, and count as updated
    schema_evolution: SchemaEvolution = SchemaEvolution.ADD
    on_target_duplicates: OnTargetDuplicates = OnTargetDuplicates.REPAIR
    max_delete_fraction: float | None = None  # None: the strategy's own default
    strict: bool = False
    scd2: Scd2Settings = Scd2Settings()
    cdc: CdcSettings | None = None
