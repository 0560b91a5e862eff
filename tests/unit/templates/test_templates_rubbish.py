"""Rubbish ends in a ConfigError or in a query, never in anything else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.config.load_project import load_project
from tallymark.errors import ConfigError
from tallymark.templates import Rendered, Template, python_references, references

PIECES = st.sampled_from(
    [
        "\n",
        "",
        "",
        "",
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "{%-",
        "-%}",
        "if",
        "else",
        "elif",
        "endif",
        "for",
        "in",
        "endfor",
        "set",
        "=",
        "with",
        "raw",
        "endraw",
        "ref('a')",
        "landing_zone(",
        ")\n",
        "",
        "",
        "",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ".",
        "|",
        "~",
        "+",
        "-",
        "*",
        "**",
        "%",
        "/",
        "//",
        "==",
        "<",
        "not",
        "is",
        "defined",
        "var('x')",
        "this",
        "watermark_value",
        "run_started_at\n",
        "",
        "",
        "",
        "loop.last",
        "loop",
        "range(3)",
        "identifier",
        "join('x')",
        "map('upper')",
        "None",
        "true",
        "'a'",
        '"b"',
        "1",
        "1.5",
        "x",
        "y",
        "_z",
        "__class__\n",
        "",
        "",
        "",
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "a",
        "AS",
        "`b`",
        ";",
        "--",
        "/*",
        "*/",
        "'",
        '"',
        "`",
        "\\",
        "$",
        "${",
        "\n",
        "\r\n",
        "\t",
        "\u2028",
        "é",
        "WITH",
        "c",
        "UNION",
        "DROP",
        "TABLE\n",
        "",
        "",
        "",
        "",
    ]
)
RUBBISH = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@RUBBISH
@given(st.lists(PIECES, max_size=25))
def test_templates(rendered: Callable[..., Rendered], pieces: list[str]) -> None:
    text = "SELECT " + " ".join(pieces)
    with contextlib.suppress(ConfigError):
        references(Template("f", text))
    with contextlib.suppress(ConfigError):
        found = rendered(text, variables={"x": "it's"})
        assert 1 <= found.line_at(len(found.sql) - 1) <= text.count("\n") + text.count("\r") + 1


@RUBBISH
@given(
    st.text()
    | st.lists(PIECES | st.sampled_from(["def transform(ctx):\n ", "result = ", "ctx."])).map("".join)
)
def test_python(text: str) -> None:
    with contextlib.suppress(ConfigError):
        python_references(Template("f", text))


ANNOTATION = st.sampled_from(
    ["-- @", "# @", "/* @", "*/", "table", "unique_key", "vars", ".", ":", " ", "a, b", "[", "]", "{", "}", "&a",
     "*a", "!!x", '"', "'", "\t", "\n", "\r", "#", "${A}", "${", "|", ">", "%", "@", "`", "-", "é", "\ufeff", "SELECT 1"]
)  # fmt: skip


@RUBBISH
@given(st.binary(max_size=200) | st.lists(ANNOTATION, max_size=40).map("".join).map(str.encode))
def test_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tallymark.yaml").touch()
    for name in ("a/pipeline.sql", "b/pipeline.py"):
        path = tmp_path / "pipelines" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with contextlib.suppress(ConfigError):
        load_project(tmp_path, {"A": "x"})
