"""A project folder that tests of the configuration write and load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tallymark.config.load_project import LoadedProject, load_project
from tallymark.config.pipeline_file import SourceConfig
from tallymark.config.pipeline_folders import Pipeline
from tallymark.errors import ConfigError

Problems = Callable[..., list[str]]  # of a text, with the environment by keyword

ORDERS = "pipelines/silver/orders/config.yaml"


class Folder:
    """A project folder in the making."""

    def __init__(self, root: Path):
        self.root = root

    def write(self, files: Mapping[str, str | bytes]) -> Folder:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def load(self, **environment: str) -> LoadedProject:
        return load_project(self.root, environment)

    def error(self, **environment: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(**environment)
        return caught.value

    def problems(self, **environment: str) -> list[str]:
        return self.error(**environment).message.splitlines()


def source_of(pipeline: Pipeline) -> SourceConfig:
    assert pipeline.config.source is not None
    return pipeline.config.source


def problems_of(error: ConfigError) -> list[dict[str, Any]]:
    found: Any = error.facts["problems"]
    return list(found)
