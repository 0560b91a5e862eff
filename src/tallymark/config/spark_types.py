"""Whether a text can be a Spark SQL type, told before Spark is started."""

from __future__ import annotations

import re

from tallymark.config.problem import did_you_mean

_FLAT = """
    boolean tinyint byte smallint short int integer bigint long float real double decimal dec numeric string
    char character varchar binary date timestamp timestamp_ltz timestamp_ntz time interval variant void
    """.split()  # noqa: SIM905
_NESTED = {"array": "array<bigint>", "map": "map<string,bigint>", "struct": "struct<a:bigint,b:string>"}
_ELSEWHERE = {
    "text": "string",
    "str": "string",
    "object": "string",
    "uuid": "string",
    "bool": "boolean",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "number": "decimal(38,0)",
    "money": "decimal(19,4)",
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "float32": "float",
    "json": "variant",
}
_OUTER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(.*)", re.DOTALL)


def check_type(text: str) -> str:
    """Looks at the outermost type; what is inside < > is Spark's to judge."""
    found = _OUTER.fullmatch(text)
    if found is None:
        raise ValueError("is empty" if not text.strip() else "is not a Spark SQL type")
    name, rest = found[1].lower(), found[2].strip()
    if text.count("(") != text.count(")") or text.count("<") != text.count(">"):
        raise ValueError('has an unclosed bracket; inside { } write it in quotes: "decimal(12,2)"')
    if name in _NESTED:
        if not (rest.startswith("<") and rest.endswith(">")):
            raise ValueError(f"{name} needs its parts, such as {_NESTED[name]}")
    elif name not in _FLAT:
        meant = f"did you mean {_ELSEWHERE[name]}?" if name in _ELSEWHERE else did_you_mean(name, _FLAT)
        raise ValueError("; ".join(part for part in (f"{name} is not a Spark SQL type", meant) if part))
    elif name in {"char", "character", "varchar"} and not rest:
        raise ValueError(f"{name} needs a length; use string, or {name}(20)")
    return text
