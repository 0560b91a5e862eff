from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tallymark.config.load_project import LoadedProject, load_project
from tallymark.errors import ConfigError
from tallymark.model import secrets

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


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "shop"
    root.mkdir()
    return Folder(root).write({"tallymark.yaml": ""})


@pytest.fixture
def orders(folder: Folder) -> Callable[..., list[str]]:
    """The problems of one pipeline's file, without the file's name."""

    def problems(text: str | bytes, **environment: str) -> list[str]:
        folder.write({ORDERS: text})
        lines = folder.problems(**environment)
        assert all(line.startswith(ORDERS + ":") for line in lines), lines
        return [line.removeprefix(ORDERS + ":").strip() for line in lines]

    return problems


@pytest.fixture
def project_file(folder: Folder) -> Callable[..., list[str]]:
    """The same for tallymark.yaml."""

    def problems(text: str | bytes, **environment: str) -> list[str]:
        folder.write({"tallymark.yaml": text})
        lines = folder.problems(**environment)
        assert all(line.startswith("tallymark.yaml:") for line in lines), lines
        return [line.removeprefix("tallymark.yaml:").strip() for line in lines]

    return problems


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_of_this_process", secrets.Redactor())
