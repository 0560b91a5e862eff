"""What Spark is started with: the `spark` section of tallymark.yaml, and what destinations need of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import Field

from tallymark.model.section import Section


class SparkConfig(Section):
    master: str = Field(
        "local[*]",
        description="local[N], spark://host:port, yarn, k8s://…, or sc://host:port for Spark Connect",
    )
    conf: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Any Spark setting; it wins over Tallymark's own"
    )
    packages: list[str] = Field(
        default_factory=list, description="Further Maven coordinates, such as a cloud storage connector"
    )


@dataclass(frozen=True)
class MavenPackage:
    coordinate: str  # group:artifact_scala:version
    shown_as: str = ""  # to the user who waits for the download: name and size

    @property
    def artifact(self) -> str:
        """Without the versions in its name, so that any version that the user brings is found by it."""
        return self.coordinate.split(":")[1].partition("_")[0]


@dataclass(frozen=True)
class SparkNeeds:
    """What a Spark session must have before a destination can use it."""

    title: str
    packages: tuple[MavenPackage, ...] = ()
    extensions: tuple[str, ...] = ()  # classes for spark.sql.extensions
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # catalogs, for example
    # Further settings for a Spark that runs inside this process.
    embedded_settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Settings of the caller's session that ours must not have.
    never_inherited: frozenset[str] = frozenset()
