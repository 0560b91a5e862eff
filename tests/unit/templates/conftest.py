from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy
from tallymark.templates import Context, Rendered, Template, render

FILE = "pipelines/gold/revenue/pipeline.sql"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def context(**facts: Any) -> Context:
    usual: dict[str, Any] = {
        "strategy": Strategy.INCREMENTAL,
        "run_started_at": NOON,
        "refs": lambda name: f"`ref {name}`",
        "zones": lambda name: f"`zone {name}`",
        "this": "`this table`",
    }
    return Context(**(usual | facts))


@pytest.fixture
def rendered() -> Callable[..., Rendered]:
    def call(text: str, **facts: Any) -> Rendered:
        return render(Template(FILE, text), context(**facts))

    return call


@pytest.fixture
def query(rendered: Callable[..., Rendered]) -> Callable[..., str]:
    """The query without its last line end."""

    def call(text: str, **facts: Any) -> str:
        return rendered(text, **facts).sql.removesuffix("\n")

    return call


@pytest.fixture
def problems(rendered: Callable[..., Rendered]) -> Callable[..., list[str]]:
    """What is wrong, without the file's name."""

    def call(text: str, **facts: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            rendered(text, **facts)
        return [line.removeprefix(f"{FILE}:").strip() for line in caught.value.message.splitlines()]

    return call
