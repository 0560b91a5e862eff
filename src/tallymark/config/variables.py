"""`${VAR}` and `${VAR:-default}` in the strings of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tallymark.model.secrets import remember

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class VariableError(ValueError):
    """The text is fit for the user; it names the variable and never a value."""


def has_variable(text: str) -> bool:
    return "${" in text


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """One pass: what a variable holds is not searched for variables again. `$${` is a literal `${`."""
    return _REFERENCE.sub(lambda found: _value(found, environment), text)


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    if found["inside"] is None:
        return "${"
    if not found["end"]:
        raise VariableError("${ without }; a literal ${ is written $${")
    inside = _INSIDE.fullmatch(found["inside"])
    if inside is None:
        raise VariableError(f"{found[0]} is not a variable; write ${{NAME}} or ${{NAME:-default}}")
    name, default = inside["name"], inside["default"]
    if default is not None and "${" in default:
        raise VariableError(f"the default of ${{{name}}} holds a variable itself; that is not supported")
    value = environment.get(name)
    if value:
        remember(value)
        return value
    if default is not None:
        return str(default)
    if value is None:
        raise VariableError(f"environment variable {name} is not set")
    return value
