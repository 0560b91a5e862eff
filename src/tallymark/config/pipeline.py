"""`pipelines/**/config.yaml`: one table, where its rows come from and how they are merged."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tallymark.model.settings import MergeSettings, OnTargetDuplicates, SchemaEvolution, Strategy

STRICT = ConfigDict(extra="forbid", frozen=True)


def as_list(value: object) -> object:
    """`unique_key: id` and `unique_key: a, b` mean the same as lists."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


Names = Annotated[list[str], BeforeValidator(as_list)]


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


class FixedWidthField(BaseModel):
    model_config = STRICT

    name: str
    start: int = Field(ge=1, description="First character, counted from 1")
    width: int = Field(ge=1)


class StabilityConfig(BaseModel):
    """Which files are still being written and so left for the next run."""

    model_config = STRICT

    min_age_seconds: float = Field(
        0, ge=0, description="Leave files that were modified more recently than this"
    )
    ignore_suffixes: list[str] = Field(
        default_factory=lambda: [".tmp", ".part", ".partial", ".crdownload", ".filepart", "._COPYING_"],
        description="Leave files whose name ends in one of these",
    )


class SourceConfig(BaseModel):
    model_config = STRICT

    files: str | list[str] = Field(
        description="A glob, or several: local, relative to the project, or any Hadoop URL"
    )
    format: Format | None = Field(None, description="Default: from the file names' extension")
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Options of Spark's reader for the format; they win over Tallymark's own",
    )
    order: Literal["name", "modified"] = Field("name", description="The order in which files apply")
    encoding: str = Field("utf-8", description="Of csv, ndjson, json, xml, text and fixed_width")
    encoding_errors: Literal["quarantine", "allow"] = Field(
        "quarantine", description="What to do with rows that do not decode: bad rows, or keep with U+FFFD"
    )
    fields: list[FixedWidthField] = Field(
        default_factory=list, description="fixed_width only: where each field is"
    )
    sheet: str | int | None = Field(None, description="excel only: name or number (from 0) of the sheet")
    row_tag: str | None = Field(None, description="xml only: the element that is a row")
    stability: StabilityConfig = StabilityConfig()


class ColumnConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str
    source: str | None = Field(None, alias="from", description="Its name in the file, if another")
    type: str | None = Field(None, description="A Spark SQL type; default: as it comes")
    format: str | None = Field(None, description="Pattern of a date or timestamp, such as dd/MM/yyyy")
    required: bool = Field(False, description="A row without a value here is a bad row")


class BatchConfig(BaseModel):
    model_config = STRICT

    max_files: int | None = Field(
        None,
        ge=1,
        description="Default 5000, or 1 where each file is a delivery of its own (full_refresh, …)",
    )
    max_bytes: str | int = Field("4GiB", description="A batch ends before it would grow larger than this")


class QuarantineConfig(BaseModel):
    model_config = STRICT

    max_fraction: float = Field(
        0.01, ge=0, le=1, description="More bad rows than this part of a batch fail it"
    )
    max_rows: int = Field(1000, ge=0, description="More bad rows than this fail the batch")


class GuardsConfig(BaseModel):
    model_config = STRICT

    max_delete_fraction: float | None = Field(None, ge=0, le=1)


class RetryConfig(BaseModel):
    model_config = STRICT

    max_attempts: int = Field(3, ge=1)


class CdcConfig(BaseModel):
    model_config = STRICT

    operation_column: str
    sequence_by: Names = Field(default_factory=list)
    operations: dict[Literal["insert", "update", "delete"], list[str]] = Field(default_factory=dict)
    history: Literal["none", "scd2"] = "none"


class PipelineConfig(BaseModel):
    model_config = STRICT

    description: str = ""
    source: SourceConfig
    columns: list[ColumnConfig] = Field(default_factory=list)
    destination: str | None = Field(None, description="Name of a destination; default: the project's default")
    table: str | None = Field(None, description="Default: the pipeline's name")
    merge_strategy: Strategy = Strategy.FULL_REFRESH
    unique_key: Names = Field(default_factory=list)
    watermark_column: str | None = None
    partition_column: str | None = None
    scd_valid_from: str = "valid_from"
    scd_valid_to: str = "valid_to"
    scd_effective_from: str | None = None
    scd_close_absent: bool = False
    dedup_order_by: Names = Field(default_factory=list)
    compare_columns: Names = Field(default_factory=list)
    schema_evolution: SchemaEvolution = SchemaEvolution.ADD
    on_target_duplicates: OnTargetDuplicates = OnTargetDuplicates.REPAIR
    archive_landing_zones: bool = False
    provenance: bool = Field(True, description="Rows carry _source_file_hash, _source_file and _ingested_at")
    strict: bool | None = None
    cdc: CdcConfig | None = None
    batch: BatchConfig = BatchConfig()
    quarantine: QuarantineConfig = QuarantineConfig()
    guards: GuardsConfig = GuardsConfig()
    retry: RetryConfig = RetryConfig()

    def merge_settings(self, project_strict: bool = False) -> MergeSettings:
        return MergeSettings(
            strategy=self.merge_strategy,
            unique_key=tuple(self.unique_key),
            watermark_column=self.watermark_column,
            partition_column=self.partition_column,
            dedup_order_by=tuple(self.dedup_order_by),
            compare_columns=tuple(self.compare_columns),
            schema_evolution=self.schema_evolution,
            on_target_duplicates=self.on_target_duplicates,
            max_delete_fraction=self.guards.max_delete_fraction,
            strict=project_strict if self.strict is None else self.strict,
        )
