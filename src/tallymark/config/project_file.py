"""`tallymark.yaml`: ledger, Spark settings, named destinations. Every line has a default."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Field, Tag, create_model, field_validator

from tallymark.destinations import registry
from tallymark.destinations.declaration import DestinationOptions
from tallymark.model.section import Section, TemplateVars
from tallymark.spark.launch_settings import SparkConfig


def _kind_name(value: Any) -> Any:
    kind = (
        value.get("type", registry.DEFAULT.name)
        if isinstance(value, dict)
        else getattr(value, "type", registry.DEFAULT.name)
    )
    return kind if isinstance(kind, str) else repr(kind)


def _one_of(kinds: Iterable[registry.AnyKind]) -> Any:
    """A union of the options of these kinds, told apart by `type`."""
    members = tuple(Annotated[kind.options, Tag(kind.name)] for kind in kinds)
    return Annotated[Union[members], Discriminator(_kind_name)]  # noqa: UP007 (made at run time)


if TYPE_CHECKING:
    DestinationConfig = DestinationOptions
else:
    DestinationConfig = _one_of(registry.BUILT_IN.values())


def _a_lake() -> dict[str, DestinationConfig]:
    return {"lake": registry.DEFAULT.options(path="warehouse")}


class ProjectDefaults(Section):
    destination: str = Field("lake", description="For pipelines that name none")
    strict: bool = Field(False, description="A missing required field is an error, never a full_refresh")


class ProjectConfig(Section):
    name: str | None = Field(None, min_length=1, description="Default: the name of the folder")
    ledger: str = Field(
        "sqlite:///.tallymark/ledger.db",
        description="The audit database: sqlite:///file (relative to the project) "
        "or postgresql://user:${PGPASSWORD}@host/db",
    )
    spark: SparkConfig = Field(default_factory=SparkConfig, description="Where Spark runs, and how")
    destinations: dict[str, DestinationConfig] = Field(
        default_factory=_a_lake,
        description="Where tables live, by a name of your choice; "
        f"default: lake, {registry.DEFAULT.title} tables in warehouse/",
    )
    defaults: ProjectDefaults = Field(
        default_factory=ProjectDefaults, description="For pipelines that do not say otherwise"
    )
    vars: TemplateVars = Field(
        default_factory=dict, description="Values for var('name') in templates; a pipeline's own win"
    )
    landing_zones: str = Field(
        "landing",
        min_length=1,
        description="The folder or URL whose folders are the zones of landing_zone('name') in transforms",
    )
    quarantine_path: str | None = Field(
        None,
        min_length=1,
        description="Where bad rows are kept, a folder or URL; default: .tallymark/quarantine; with a "
        f"cluster or a store, beside the first {registry.QUARANTINE.title} path: `<path>_quarantine`",
    )
    parallel: int = Field(2, ge=1, le=64, description="How many pipelines run at the same time")

    @field_validator("ledger")
    @classmethod
    def _a_database_that_lasts(cls, url: str) -> str:
        if re.match(r"(postgresql|postgres|postgresql\+psycopg)://.", url):
            return url
        if re.match(r"sqlite:///(?!:memory:)[^?]", url):
            return url
        raise ValueError("expected sqlite:///path/to/file.db or postgresql://user@host/database")


def installed_model() -> type[ProjectConfig]:
    """ProjectConfig with the kinds of destinations that other distributions install."""
    kinds = registry.installed_kinds()
    if len(kinds) == len(registry.BUILT_IN):
        return ProjectConfig
    options: Any = dict[str, _one_of(kinds)]  # type: ignore[misc]  # made at run time
    field = ProjectConfig.model_fields["destinations"]
    return create_model("ProjectConfig", __base__=ProjectConfig, destinations=(options, field))
