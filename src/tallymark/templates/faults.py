"""What is wrong in a template, before its place is known."""

from __future__ import annotations

from tallymark.config.problem import Problem, config_error
from tallymark.errors import ConfigError


class Fault(Exception):
    """Raised by what a template calls; whoever renders it adds file and line."""

    def __init__(self, message: str, suggestion: str = ""):
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def wrong(file: str, line: int, message: str, suggestion: str = "") -> ConfigError:
    return config_error([Problem(file, line, 0, "", message, suggestion)])
