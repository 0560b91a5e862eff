"""Whatever is in the files: loading ends, soon, with a ConfigError or a project."""

from __future__ import annotations

import random
import time
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tallymark.config.load_project import load_project
from tallymark.config.yaml_file import MAX_FILE_BYTES, MAX_VALUES
from tallymark.errors import ConfigError
from unit.config.project_folder import Folder, problems_of

ORDERS = "pipelines/a/config.yaml"

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)
WORDS = [
    *"\n :-[]{}&*!|>'\"%@`#?,~<\t$",
    "\n  ",
    "\n- ",
    "source",
    "files",
    "columns",
    "name",
    "destinations",
    "lake",
    "&a",
    "*a",
    "!!int",
    "!!binary",
    "!!omap",
    "2026-11-01",
    "1e999",
    "0x1F",
    "null",
    "true",
    "${A}",
    "\\U99999999",
    "---",
    "...",
    "%YAML 1.1",
]


def survives(root: Path, name: str, content: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    try:
        load_project(root, {"A": "x"})
    except ConfigError as error:
        problems = problems_of(error)
        assert problems
        assert all(problem["file"] for problem in problems)


@pytest.mark.parametrize("name", ["tallymark.yaml", ORDERS])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(text.encode(), id=title)
        for title, text in {
            "lists": "[" * 600,
            "mappings": "{" * 600,
            "dashes": "- " * 50_000,
            "questions": "? " * 50_000,
            "indentation": "".join(" " * depth + "a:\n" for depth in range(600)),
            "closed lists": "a: " + "[" * 200 + "]" * 200,
            "one long text": "a: '" + "x" * 200_000,
            "escape": 'a: "\\U99999999"',
            "number": "parallel: " + "9" * 10_000,
            "float": "parallel: 1e999999999",
            "tag": "!!python/object/apply:os.system [x]",
            "merge of itself": "a: &a {<<: *a}",
            "alias of itself": "a: &a [*a]",
            "alias of itself in a mapping": "&a\nspark: *a",
            "directive": "%YAML 9.9\n---\na: 1",
            "no scalar": "a: !!int x\nb: !!float y\nc: !!bool z\nd: !!timestamp t\ne: !!binary '*'\n",
            "nul": "\x00",
            "surrogate": 'name: "\\ud800"',
        }.items()
    ],
)
def test_made_to_hurt(folder: Folder, name: str, content: bytes) -> None:
    started = time.monotonic()
    survives(folder.root, name, content)
    assert time.monotonic() - started < 20


def test_an_alias_bomb_is_stopped(folder: Folder) -> None:
    folder.write({ORDERS: BOMB})
    started = time.monotonic()
    (line,) = folder.problems()
    assert f"holds more than {MAX_VALUES} values" in line
    assert time.monotonic() - started < 10


def test_deep_nesting_has_its_line(folder: Folder) -> None:
    folder.write({ORDERS: "table: x\ncdc: " + "[" * 60 + "]" * 60})
    assert folder.problems() == [f"{ORDERS}:2: cdc: is nested too deeply"]


@pytest.mark.parametrize("text", ["- " * 5000, "a: " + "[" * 600])
def test_nesting_beyond_what_the_parser_bears(folder: Folder, text: str) -> None:
    folder.write({ORDERS: text})
    assert folder.problems() == [f"{ORDERS}:1: is nested too deeply"]


def test_huge_file(folder: Folder) -> None:
    folder.write({ORDERS: "#" * (MAX_FILE_BYTES + 1)})
    assert folder.problems() == [f"{ORDERS}: is larger than 256 KiB; is this a configuration file?"]


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes(folder: Folder, seed: int) -> None:
    noise = random.Random(seed)
    for name in ("tallymark.yaml", ORDERS):
        survives(folder.root, name, noise.randbytes(noise.randrange(1, 5000)))


def test_a_good_file_cut_anywhere_or_with_a_byte_changed(folder: Folder) -> None:
    good = (
        b"source: {files: in/*.csv, options: {a: true}}\ncolumns: [{name: a, type: int}]\nunique_key: [a]\n"
    )
    noise = random.Random(7)
    for end in range(len(good)):
        survives(folder.root, ORDERS, good[:end])
        changed = bytearray(good)
        changed[end] = noise.randrange(256)
        survives(folder.root, ORDERS, bytes(changed))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.sampled_from(WORDS), max_size=40), in_project=st.booleans())
@example(words=["source", ":", " ", "!!binary", " ", "'", "'"], in_project=False)
def test_yaml_like_rubbish(folder: Folder, words: list[str], in_project: bool) -> None:
    folder.write({"tallymark.yaml": ""})
    survives(folder.root, "tallymark.yaml" if in_project else ORDERS, "".join(words).encode())


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "source",
    "files",
    "columns",
    "name",
    "type",
    "cdc",
    "operations",
    "destinations",
    "lake",
    "path",
    "conf",
]
keyed = st.recursive(
    plain, lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=5), max_leaves=12
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.dictionaries(st.sampled_from(KEYS), keyed, max_size=6), in_project=st.booleans())
def test_right_keys_with_wrong_values(folder: Folder, data: dict[str, object], in_project: bool) -> None:
    text = BytesIO()
    YAML(typ="safe", pure=True).dump(data, text)
    folder.write({"tallymark.yaml": ""})
    survives(folder.root, "tallymark.yaml" if in_project else ORDERS, text.getvalue())
