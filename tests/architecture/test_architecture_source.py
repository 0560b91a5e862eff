"""What the house style asks of the source and a linter does not look at."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from tallymark import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tallymark"
MODULES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}

MAX_LINES = 500
MODULES_AT_MOST = 188
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
# Spark Connect has none of these: code that needs them works on a classic session only.
CLASSIC_ONLY = {"_jvm", "_jsparkSession", "_jdf", "_sc", "sparkContext", "rdd", "newSession"}


def test_modules_are_short() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_import_contracts_name_modules_that_exist() -> None:
    named = {name for contract in contracts() for name in names_in(contract)}
    assert [name for name in sorted(named) if not exists(name)] == []


def contracts() -> list[dict[str, Any]]:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(written["tool"]["importlinter"]["contracts"])


def names_in(contract: dict[str, Any]) -> set[str]:
    keys = ("layers", "modules", "source_modules", "forbidden_modules")
    entries = [entry for key in keys for entry in contract.get(key, [])]
    inside = [f"{container}." for container in contract.get("containers", [""])]
    return {f"{before}{name.strip()}" for entry in entries for name in entry.split("|") for before in inside}


def names_in_block(page: str, first: str) -> list[str]:
    """The lines of the block that begins with this line."""
    blocks = re.findall(r"(?ms)^```\n(.*?)^```", page)
    return next(block.splitlines() for block in blocks if block.splitlines()[0] == first)


def exists(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_contributing_shows_the_layers_of_the_import_contract() -> None:
    shown = names_in_block((ROOT / "CONTRIBUTING.md").read_text(), "cli")
    assert shown == [layer.replace("tallymark.", "") for layer in contracts()[0]["layers"]]


def test_contributing_shows_the_tree() -> None:
    """Every package, and no folder or module that does not exist."""
    lines = names_in_block((ROOT / "CONTRIBUTING.md").read_text(), "src/tallymark/")[1:]
    above, shown = "", set()
    for line in lines:
        names = re.match(r"\s+((?:[\w.]+(?:/|\.py) ?)+)", line)
        assert names is not None, line
        is_inside = line.startswith("    ")
        shown |= {f"{above}{name}" if is_inside else name for name in names[1].split()}
        above = above if is_inside else names[1].split()[0]
    assert [name for name in sorted(shown) if not (SOURCE / name).exists()] == []
    packages = {f"{path.parent.relative_to(SOURCE)}/" for path in SOURCE.glob("*/__init__.py")}
    inner = {
        f"{path.parent.relative_to(SOURCE)}/"
        for folder in ("flow", "destinations")
        for path in SOURCE.glob(f"{folder}/*/__init__.py")
    }
    assert (packages | inner) - shown == set()


def test_unit_tests_follow_the_packages() -> None:
    """Those of the examples and the benchmarks aside, which are no packages."""
    top = ROOT / "tests" / "unit"
    files = [path for path in top.rglob("test_*.py") if path.parent not in (top, top / "bench")]
    folders = {path.parent.relative_to(top) for path in files}
    assert [folder for folder in sorted(folders) if not (SOURCE / folder / "__init__.py").is_file()] == []
    assert [path.name for path in files if not path.name.startswith(f"test_{path.parent.name}_")] == []


def test_classes_have_names_of_their_own() -> None:
    """One name, one meaning, in the whole source."""
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by their file name."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, uses in names.items() if uses > 1] == []


def test_module_names_say_what_they_are_about() -> None:
    vague = [
        name
        for name in MODULES
        if {part.removesuffix(".py").strip("_") for part in Path(name).parts} & FORBIDDEN_NAMES
    ]
    assert vague == []


def test_only_the_session_layer_reaches_into_spark() -> None:
    found = {
        name: attributes(path) & CLASSIC_ONLY
        for name, path in MODULES.items()
        if not path.is_relative_to(SOURCE / "spark")
    }
    assert {name: used for name, used in found.items() if used} == {}


def test_names_get_their_quotes_in_one_place() -> None:
    """`model.types.quoted` doubles the quotes inside; a name between two written ones could end there."""
    documents = {"config/keys.py", "destinations/registry.py"}  # their quotes are Markdown's
    sql = {name: path for name, path in MODULES.items() if not name.startswith("cli/")}
    found = {name for name, path in sql.items() if name not in documents and quotes_names(path)}
    assert found == {"model/types.py"}


def quotes_names(path: Path) -> bool:
    text = path.read_text()
    parts = (node.values for node in ast.walk(ast.parse(text)) if isinstance(node, ast.JoinedStr))
    between = any(
        isinstance(before, ast.Constant)
        and isinstance(value, ast.FormattedValue)
        and re.search(r"(?:^|[.\s(,=])`$", str(before.value))
        for values in parts
        for before, value in pairwise(values)
    )
    return between or '.replace("`", "``")' in text


def attributes(path: Path) -> set[str]:
    return {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}


def error_classes() -> list[type[errors.TallymarkError]]:
    classes = (value for _, value in inspect.getmembers(errors, inspect.isclass))
    return [each for each in classes if issubclass(each, errors.TallymarkError)]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = Counter(each.code for each in error_classes())
    assert [code for code, uses in codes.items() if uses > 1] == []


def test_every_error_is_in_the_drawn_tree_under_its_parent() -> None:
    drawn = drawn_parents(errors.__doc__ or "")
    actual = {each.__name__: each.__bases__[0].__name__ for each in error_classes()}
    assert drawn == actual


def drawn_parents(drawing: str) -> dict[str, str]:
    """Reads the tree that errors.py draws with ├── and └──: class name → parent."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in drawing.splitlines():
        found = re.match(r"^([\s│├└─]*)([A-Z]\w+)", line)
        if found is None or (found[2] != "TallymarkError" and "──" not in found[1]):
            continue
        depth = len(found[1])
        above = [(level, name) for level, name in above if level < depth]
        parents[found[2]] = above[-1][1] if above else "Exception"
        above.append((depth, found[2]))
    return parents
