from __future__ import annotations

from pathlib import Path

import pytest

from tallymark.model import section as secrets
from unit.config.project_folder import ORDERS, Folder, Problems


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "shop"
    root.mkdir()
    return Folder(root).write({"tallymark.yaml": ""})


@pytest.fixture
def orders(folder: Folder) -> Problems:
    """The problems of one pipeline's file, without the file's name."""

    def problems(text: str | bytes, **environment: str) -> list[str]:
        folder.write({ORDERS: text})
        lines = folder.problems(**environment)
        assert all(line.startswith(ORDERS + ":") for line in lines), lines
        return [line.removeprefix(ORDERS + ":").strip() for line in lines]

    return problems


@pytest.fixture
def project_file(folder: Folder) -> Problems:
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
