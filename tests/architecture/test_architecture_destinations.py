"""A destination is named in its own folder and in the registry, and nowhere else.

Identifiers and texts of the code count; comments and docstrings may give a destination as an example.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tallymark.destinations.registry import BUILT_IN

SOURCE = Path(__file__).parents[2] / "src" / "tallymark"
NAMED = re.compile(rf"(?i)(?<![a-z])({'|'.join(BUILT_IN)})")
OWN = (*(f"destinations/{kind}/" for kind in BUILT_IN), "destinations/registry.py")

# Path, or start of it → why it may name what is also the name of a destination.
ALLOWED = {
    "ledger/": "the audit database is SQLite or PostgreSQL, whatever the destinations are",
    "config/load_project.py": "the address of the ledger",
    "config/project_file.py": "the address of the ledger",
    "config/new_project.py": "the address of the ledger",
    "checks/quarantine": "bad rows are kept in Delta tables, whatever the destinations are",
    "destinations/lakehouse/home.py": "markers and tombstones that only Spark reaches are in Delta tables",
    "destinations/lakehouse/marker_copies.py": "markers that only Spark reaches are in a Delta table",
    "destinations/lakehouse/tombstones.py": "tombstones that only Spark reaches are in a Delta table",
}


def test_nothing_else_names_a_destination() -> None:
    found = {
        name: sorted(set(texts))
        for name, texts in named().items()
        if not name.startswith((*OWN, *ALLOWED)) and texts
    }
    assert found == {}


def test_every_exception_is_still_needed() -> None:
    files = [name for name, texts in named().items() if texts]
    assert [allowed for allowed in ALLOWED if not any(name.startswith(allowed) for name in files)] == []


def named() -> dict[str, list[str]]:
    return {
        str(path.relative_to(SOURCE)): [text for text in words(path) if NAMED.search(text)]
        for path in sorted(SOURCE.rglob("*.py"))
    }


def words(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.alias(name=word):
                yield word
            case ast.FunctionDef(name=word) | ast.ClassDef(name=word) | ast.ImportFrom(module=str(word)):
                yield word
            case ast.Constant(value=str(word)) if id(node) not in docstrings:
                yield word
