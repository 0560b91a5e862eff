from __future__ import annotations

import pytest

from tallymark.sources import stores


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a/*.csv", ["a/*.csv"]),
        ("{a,b}/*.csv", ["a/*.csv", "b/*.csv"]),
        ("x.{csv,tsv}{,.gz}", ["x.csv", "x.csv.gz", "x.tsv", "x.tsv.gz"]),
        ("{a/{b,c},d}", ["a/b", "d", "a/c", "d"]),
        ("{single}", ["{single}"]),
    ],
)
def test_braces(pattern: str, expected: list[str]) -> None:
    assert sorted(stores.expand_braces(pattern)) == sorted(expected)


@pytest.mark.parametrize(
    ("pattern", "folder", "parts"),
    [
        ("/data/in/*.csv", "/data/in", ["*.csv"]),
        ("/data/*/x/*.csv", "/data", ["*", "x", "*.csv"]),
        ("/data/in/a.csv", "/data/in", ["a.csv"]),
        ("/*.csv", "/", ["*.csv"]),
        ("s3a://bucket/in/**/*.csv", "s3a://bucket/in", ["**", "*.csv"]),
    ],
)
def test_fixed_folder(pattern: str, folder: str, parts: list[str]) -> None:
    assert stores.split_fixed(pattern) == (folder, parts)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/d/*.csv", "/d/a.csv", True),
        ("/d/*.csv", "/d/x/a.csv", False),
        ("/d/*.csv", "/d/.a.csv", False),
        ("/d/*.csv", "/d/_a.csv", False),
        ("/d/**/*.csv", "/d/a.csv", True),
        ("/d/**/*.csv", "/d/x/y/a.csv", True),
        ("/d/**/*.csv", "/d/x/_tmp/a.csv", False),
        ("/d/**", "/d/x/y/a.txt", True),
        ("/d/a?.csv", "/d/ab.csv", True),
        ("/d/a?.csv", "/d/a.csv", False),
        ("/d/[a-c].csv", "/d/b.csv", True),
        ("/d/[!a-c].csv", "/d/b.csv", False),
        ("/d/[]].csv", "/d/].csv", True),
        ("/d/\\*.csv", "/d/*.csv", True),
        ("/d/\\*.csv", "/d/a.csv", False),
        ("/_d/*.csv", "/_d/a.csv", True),
        ("/d/a.b", "/d/aXb", False),
    ],
)
def test_whole_paths(pattern: str, path: str, matches: bool) -> None:
    assert bool(stores.path_regex(pattern).fullmatch(path)) is matches
