"""What holds for a pipeline: `config`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from tallymark.cli.blocks import Answer, Grid

if TYPE_CHECKING:
    from tallymark.config.effective import Setting


def settings(pipeline: str, found: Sequence[Setting]) -> Answer:
    rows = tuple((setting.key, _written(setting.value), setting.place) for setting in found)
    return Answer(
        result={"pipeline": pipeline, "settings": list(found)},
        blocks=(Grid(("setting", "value", "from"), rows),),
    )


def _written(value: object) -> str:
    """As it could stand in a file; nothing where there is no value."""
    match value:
        case None | [] | "":
            return "-"
        case str() | date():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)
