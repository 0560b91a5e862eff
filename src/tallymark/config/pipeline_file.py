"""`pipelines/**/config.yaml`: one table, where its rows come from and how they are merged."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from tallymark.config.quality_section import QualityConfig
from tallymark.model.section import ColumnName, Names, Section, TemplateVars, first_repeated
from tallymark.model.settings import (
    DEFAULT_CODES,
    CdcSettings,
    EnvelopeSettings,
    MergeSettings,
    OnTargetDuplicates,
    Operation,
    RepeatedContent,
    Scd2Settings,
    SchemaEvolution,
    Strategy,
)
from tallymark.model.types import parse_type


class Format(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"
    XML = "xml"
    TEXT = "text"
    EXCEL = "excel"
    FIXED_WIDTH = "fixed_width"


class Materialized(StrEnum):
    TABLE = "table"
    VIEW = "view"


class FixedWidthField(Section):
    name: ColumnName = Field(description="Column name")
    start: int = Field(ge=1, description="First character, counted from 1")
    width: int = Field(ge=1, description="Number of characters")


class StabilityConfig(Section):
    """Which files are still being written and are left for the next run."""

    min_age_seconds: float = Field(
        0, ge=0, description="Leave files that were modified more recently than this"
    )
    ignore_suffixes: list[str] = Field(
        default_factory=lambda: [".tmp", ".part", ".partial", ".crdownload", ".filepart", "._COPYING_"],
        description="Leave files whose name ends in one of these",
    )


class SourceConfig(Section):
    files: str | list[str] = Field(
        description="A glob, or several: local, relative to the project, or any Hadoop URL"
    )
    format: Format | None = Field(None, description="Default: from the file names' extension")
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Options of Spark's reader for the format; they win over Tallymark's own",
    )
    order: Literal["name", "modified"] = Field("name", description="The order in which files apply")
    encoding: str = Field("utf-8", min_length=1, description="Of csv, ndjson, json, xml, text, fixed_width")
    encoding_errors: Literal["quarantine", "allow"] = Field(
        "quarantine", description="What to do with rows that do not decode: bad rows, or keep with U+FFFD"
    )
    fields: list[FixedWidthField] = Field(
        default_factory=list, description="fixed_width only: where each field is"
    )
    sheet: str | int | None = Field(None, description="excel only: name or number (from 0) of the sheet")
    row_tag: str | None = Field(None, min_length=1, description="xml only: the element that is a row")
    stability: StabilityConfig = Field(
        default_factory=StabilityConfig,
        description="Which files are still being written and are left for the next run",
    )

    @field_validator("files")
    @classmethod
    def _names_something(cls, files: str | list[str]) -> str | list[str]:
        globs = [files] if isinstance(files, str) else files
        if not globs or not all(glob.strip() for glob in globs):
            raise ValueError("is empty; expected a glob such as landing/orders/*.csv")
        return files

    @model_validator(mode="after")
    def _fixed_width_says_where(self) -> Self:
        if self.format is Format.FIXED_WIDTH and not self.fields:
            raise ValueError("format fixed_width needs fields: a list of {name, start, width}")
        return self


class ColumnConfig(Section):
    model_config = ConfigDict(populate_by_name=True)

    name: ColumnName = Field(description="Its name in the table")
    source: str | None = Field(
        None, alias="from", min_length=1, description="Its name in the file, if another"
    )
    type: str | None = Field(None, description="A Spark SQL type; default: the type that the file gives")
    format: str | None = Field(
        None, min_length=1, description="Pattern of a date or timestamp, such as dd/MM/yyyy"
    )
    required: bool = Field(False, description="A row without a value here is a bad row")

    @field_validator("type")
    @classmethod
    def _known_type(cls, text: str | None) -> str | None:
        if text is None:
            return None
        if text.count("(") != text.count(")") or text.count("<") != text.count(">"):
            # Inside { } YAML ends a value at a comma.
            raise ValueError('has an unclosed bracket; inside { } write it in quotes: "decimal(12,2)"')
        parse_type(text)
        return text


_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_bytes(size: str | int) -> int:
    """`4GiB`, `500MB` or a number of bytes."""
    found = _SIZE.fullmatch(str(size).strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ValueError("expected a size such as 4GiB, 500MB or a whole number of bytes")
    number = int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
    if number < 1:
        raise ValueError("must be at least 1 byte")
    return number


class BatchConfig(Section):
    max_files: int | None = Field(
        None,
        ge=1,
        description="Default: 5000, or 1 where each file is a delivery of its own (full_refresh, …)",
    )
    max_bytes: str | int = Field(
        "4GiB", description="A batch ends before it would grow larger than this: 4GiB, 500MB or bytes"
    )

    @field_validator("max_bytes")
    @classmethod
    def _a_size(cls, size: str | int) -> str | int:
        parse_bytes(size)
        return size

    @property
    def max_bytes_value(self) -> int:
        return parse_bytes(self.max_bytes)


class QuarantineConfig(Section):
    max_fraction: float = Field(
        0.01, ge=0, le=1, description="More bad rows than this part of a batch fail it"
    )
    max_rows: int = Field(1000, ge=0, description="More bad rows than this fail the batch")


class GuardsConfig(Section):
    max_delete_fraction: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Stop a load that would delete more than this part of the table, before it writes; "
        "default: 0.5 for full_merge and for the fallback, off for full_refresh",
    )


class RetryConfig(Section):
    max_attempts: int = Field(3, ge=1, description="After this many failures a file waits for `requeue`")


class PipelineConfig(Section):
    description: str = Field("", description="Free text for people")
    source: SourceConfig | None = Field(
        None, description="The files that the rows come from; none beside a pipeline.sql or pipeline.py"
    )
    columns: list[ColumnConfig] = Field(
        default_factory=list,
        description="Rename, cast, require; what is not named passes through",
    )
    destination: str | None = Field(None, description="Name of a destination; default: the project's default")
    table: str | None = Field(None, description="Default: the pipeline's name")
    materialized: Materialized = Field(
        Materialized.TABLE, description="pipeline.sql only: view keeps the query instead of its rows"
    )
    vars: TemplateVars = Field(
        default_factory=dict, description="Values for var('name') in templates; they win over the project's"
    )
    merge_strategy: Strategy = Field(
        Strategy.FULL_REFRESH, description="What happens to the rows that are already in the table"
    )
    unique_key: Names = Field(default_factory=list, description="The columns that identify a row")
    watermark_column: ColumnName | None = Field(
        None, description="incremental: an older row by this column does not replace a newer one"
    )
    partition_column: ColumnName | None = Field(
        None, description="snapshot: the partitions in the batch are replaced whole"
    )
    scd_valid_from: ColumnName = Field("valid_from", description="scd2: the column that opens a version")
    scd_valid_to: ColumnName = Field("valid_to", description="scd2: the column that closes a version")
    scd_current_flag: ColumnName | None = Field(
        None, description="scd2: a column that is true for the open version; default: none"
    )
    scd_effective_from: ColumnName | None = Field(
        None, description="scd2: the column with the time of a change; default: the time of the load"
    )
    scd_close_absent: bool = Field(False, description="scd2: close keys that are absent from the batch")
    dedup_order_by: Names = Field(
        default_factory=list, description="deduplicate: the last row by these columns survives"
    )
    compare_columns: Names = Field(
        default_factory=list, description="A row is changed if one of these differs; default: all"
    )
    skip_unchanged: bool = Field(
        True,
        description="false: write rows of known keys without comparing them first; they count as updated",
    )
    schema_evolution: SchemaEvolution = Field(
        SchemaEvolution.ADD, description="What to do with columns that the table does not have"
    )
    on_target_duplicates: OnTargetDuplicates = Field(
        OnTargetDuplicates.REPAIR, description="What to do with keys that the table already has twice"
    )
    repeated_content: RepeatedContent | None = Field(
        None,
        description="What to do with a file that brings a content again after another one; default: apply "
        "for full_refresh, full_merge, snapshot and scd2 with scd_close_absent, else skip",
    )
    archive_landing_zones: bool = Field(False, description="Move files to _archive/ once they are committed")
    provenance: bool = Field(True, description="Rows carry _source_file_hash, _source_file and _ingested_at")
    strict: bool | None = Field(
        None,
        description="A missing required field is an error, never a full_refresh; default: the project's",
    )
    cdc: CdcConfig | None = Field(None, description="How to read a change feed")
    batch: BatchConfig = Field(default_factory=BatchConfig, description="How much one commit applies")
    quarantine: QuarantineConfig = Field(
        default_factory=QuarantineConfig, description="How many bad rows are too many"
    )
    guards: GuardsConfig = Field(default_factory=GuardsConfig, description="What stops a load")
    quality: QualityConfig = Field(
        default_factory=QualityConfig,
        description="What must hold for the table after a load, before it is committed",
    )
    retry: RetryConfig = Field(default_factory=RetryConfig, description="How often to try")

    @field_validator("columns")
    @classmethod
    def _named_once(cls, columns: list[ColumnConfig]) -> list[ColumnConfig]:
        twice = first_repeated(column.name for column in columns)
        if twice is not None:
            raise ValueError(f"names {twice} twice")
        return columns

    def merge_settings(self, project_strict: bool = False) -> MergeSettings:
        return MergeSettings(
            strategy=self.merge_strategy,
            unique_key=tuple(self.unique_key),
            watermark_column=self.watermark_column,
            partition_column=self.partition_column,
            dedup_order_by=tuple(self.dedup_order_by),
            compare_columns=tuple(self.compare_columns),
            skip_unchanged=self.skip_unchanged,
            schema_evolution=self.schema_evolution,
            on_target_duplicates=self.on_target_duplicates,
            max_delete_fraction=self.guards.max_delete_fraction,
            strict=project_strict if self.strict is None else self.strict,
            scd2=Scd2Settings(
                valid_from=self.scd_valid_from,
                valid_to=self.scd_valid_to,
                current_flag=self.scd_current_flag,
                effective_from=self.scd_effective_from,
                close_absent=self.scd_close_absent,
            ),
            cdc=None if self.cdc is None else self.cdc.settings(),
        )

    def envelope_settings(self) -> EnvelopeSettings | None:
        """None if the records of the files are rows."""
        if self.cdc is None or self.cdc.envelope is None:
            return None
        sources = {rule.name.casefold(): rule.source for rule in self.columns if rule.source}
        key = tuple(sources.get(name.casefold(), name) for name in self.unique_key)
        return EnvelopeSettings(self.cdc.operation_column, tuple(self.cdc.sequence_by), key)


Kind = Literal["insert", "update", "delete", "truncate"]

DEBEZIUM_CODES: dict[Operation, tuple[str, ...]] = {
    Operation.INSERT: ("c", "r"),
    Operation.UPDATE: ("u",),
    Operation.DELETE: ("d",),
    Operation.TRUNCATE: ("t",),
}


class CdcConfig(Section):
    operation_column: ColumnName = Field("op", description="The column that says insert, update or delete")
    sequence_by: Names = Field(
        default_factory=list,
        description="What orders the changes of a key; default: file order. "
        "In an envelope a path such as source.lsn, which becomes column lsn",
    )
    operations: dict[Kind, Names] = Field(
        default_factory=dict,
        description="Which values of operation_column mean which operation; case is ignored; "
        "a kind that is not given keeps its usual codes",
    )
    partial: bool = Field(
        False, description="Updates carry only what changed: an empty column keeps the table's value"
    )
    history: Literal["none", "scd2"] = Field("none", description="scd2 keeps every version of a row")
    tombstone_days: float = Field(
        30, ge=0, description="How long a delete is remembered, against late changes that are older"
    )
    envelope: Literal["debezium"] | None = Field(
        None, description="debezium: each record has op, before and after, perhaps under payload"
    )

    @field_validator("operations")
    @classmethod
    def _one_meaning_each(cls, operations: dict[Kind, list[str]]) -> dict[Kind, list[str]]:
        meanings: dict[str, str] = {}
        for kind, codes in operations.items():
            for code in codes:
                other = meanings.setdefault(_folded(code), kind)
                if other != kind:
                    raise ValueError(f"{code} means both {other} and {kind}")
        return operations

    def settings(self) -> CdcSettings:
        names = self.sequence_by
        return CdcSettings(
            operation_column=self.operation_column,
            sequence_by=tuple(name.rpartition(".")[2] for name in names) if self.envelope else tuple(names),
            codes=DEBEZIUM_CODES if self.envelope else self._codes(),
            partial=self.partial,
            history=self.history == "scd2",
            tombstone_days=self.tombstone_days,
        )

    def _codes(self) -> dict[Operation, tuple[str, ...]]:
        """What the user says about a code wins over what it usually means."""
        given = {
            Operation(kind): tuple(_folded(code) for code in codes) for kind, codes in self.operations.items()
        }
        taken = {code for codes in given.values() for code in codes}
        usual = {
            kind: tuple(code for code in codes if code not in taken)
            for kind, codes in DEFAULT_CODES.items()
            if kind not in given
        }
        return usual | given


def _folded(code: str) -> str:
    return code.strip().lower()
