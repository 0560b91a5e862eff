"""The tables of the destination guide that come from docstrings: members of the engine and its session."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "tallymark"
ENGINE = SOURCE / "destinations" / "warehouse" / "engine.py"
BEGIN, END = "<!-- begin engine members -->", "<!-- end engine members -->"


def with_engine_members(page: str) -> str:
    """The page with fresh tables between its marks; the text around them stays."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n".join(_table(name) for name in ("Engine", "Session"))
    return f"{before}{BEGIN}\n{tables}{END}{after}"


def _table(name: str) -> str:
    rows = [f"| member of `{name}` | promise |", "|---|---|"]
    rows += [f"| `{member}` | {promise} |" for member, promise in members(ENGINE, name).items()]
    return "\n".join(rows) + "\n"


def members(module: Path, name: str) -> dict[str, str]:
    """The public members of a class, with what their docstrings say."""
    classes = [node for node in ast.parse(module.read_text()).body if isinstance(node, ast.ClassDef)]
    [found] = [node for node in classes if node.name == name]
    promises: dict[str, str] = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef):
            promises[node.name] = " ".join((ast.get_docstring(node) or "").split())
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            promises[node.target.id] = ""
    return {member: promise for member, promise in promises.items() if not member.startswith("_")}
