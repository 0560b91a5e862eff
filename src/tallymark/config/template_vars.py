"""`vars`: values that templates ask for by `var('name')`."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated

from pydantic import AfterValidator

Scalar = str | int | float | bool | date | datetime

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _named(values: dict[str, Scalar]) -> dict[str, Scalar]:
    for name in values:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name} cannot be the name of a variable: use letters, digits and _")
    return values


TemplateVars = Annotated[dict[str, Scalar], AfterValidator(_named)]
