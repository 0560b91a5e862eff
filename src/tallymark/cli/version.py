from __future__ import annotations

from importlib.metadata import version


def installed_version() -> str:
    return version("tallymark")
