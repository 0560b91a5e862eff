"""Checks that the rendered text is one query that reads only inputs named by ref and landing_zone.

1. comments out      sqlglot and Spark do not agree on where each ends (Spark continues after a backslash at
                     the end of a line); and no `${…}`: it stays text, but its author expects a value
2. one query         sqlglot parses it as Spark SQL
3. known relations   everything that it reads was given to the template

sqlglot is more lenient than Spark: what passes here may still be refused there, with a line of the query that
`Rendered.template_line` maps back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp, parse
from sqlglot.dialects import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from tallymark.config.yaml_file import Problem, config_error
from tallymark.errors import ConfigError
from tallymark.templates.context import Rendered, Template, TemplateFault, template_error

DIALECT = "spark"
# They run programs or read the environment of the process.
_FORBIDDEN = {"reflect", "java_method", "try_reflect"}
# Functions that stand in the place of a table and make rows of their own.
_ROW_MAKERS = {
    "range",
    "explode",
    "explode_outer",
    "posexplode",
    "posexplode_outer",
    "inline",
    "inline_outer",
    "stack",
    "json_tuple",
    "variant_explode",
    "variant_explode_outer",
}
_PARTS = re.compile(
    r"""(?P<line>--[^\n]*)|(?P<block>/\*(?!\+))|\b[rR](?P<raw>'[^']*+'?|"[^"]*+"?)
      |'(?:[^'\\]|\\.?)*+'?|"(?:[^"\\]|\\.?)*+"?|`[^`]*+`?""",
    re.DOTALL | re.VERBOSE,
)
_BLOCK_MARK = re.compile(r"/\*|\*/")
_NOT_LINE_END = re.compile(r"[^\n]")
_Key = tuple[str, ...]

# A statement that sqlglot does not know is refused below; its warning would only repeat that.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def checked(template: Template, rendered: Rendered, relations: Iterable[str]) -> Rendered:
    """The query without comments and semicolons. `relations` are those given to the template."""
    try:
        rendered = replace(rendered, sql=without_comments(rendered.sql))
    except UnclosedText as error:
        raise template_error(template.file, rendered.line_at(error.offset), error.message) from None
    if "${" in rendered.sql:
        line = rendered.line_at(rendered.sql.index("${"))
        hint = "write var('name'), and ${NAME} in vars; in a string write \\u0024{"
        raise template_error(template.file, line, "${…} is replaced only in YAML files, not in a query", hint)
    rendered = replace(rendered, sql=_without_semicolons(template, rendered))
    query = _one_query(template, rendered)
    problems = list(_problems(template, rendered, query, {_key(_table(name)) for name in relations}))
    if problems:
        raise config_error(problems)
    return rendered


def _without_semicolons(template: Template, rendered: Rendered) -> str:
    sql = rendered.sql
    try:
        tokens = Spark().tokenize(sql)
    except SqlglotError as error:
        raise template_error(template.file, 0, f"SQL: {error}") from None
    if not tokens:
        raise template_error(template.file, 1, "contains no query", "write a SELECT")
    end = len(sql)
    for token in reversed(tokens):
        if token.token_type is not TokenType.SEMICOLON:
            break
        end = token.start
    return sql[:end].rstrip() + "\n"


def _one_query(template: Template, rendered: Rendered) -> exp.Expr:
    try:
        statements = [
            statement for statement in parse(rendered.sql, dialect=DIALECT) if statement is not None
        ]
    except ParseError as error:
        raise _syntax(template, rendered, error) from None
    except (RecursionError, MemoryError):
        raise template_error(template.file, 0, "is nested too deeply", "split it with WITH") from None
    except Exception as error:
        # The parser lets other errors through, such as IndexError for `map('a')`.
        raise template_error(template.file, 0, f"cannot be read as SQL ({type(error).__name__})") from None
    if len(statements) > 1:
        second = next(at for at in _statement_starts(rendered.sql))
        hint = "one pipeline makes one table: move the others to pipelines of their own"
        raise template_error(template.file, rendered.line_at(second), "a second statement begins here", hint)
    (query,) = statements
    if not isinstance(query, exp.Query | exp.Values):
        message = f"is not a query: it is {_statement(query)}"
        raise template_error(
            template.file, rendered.line_at(_first_token(rendered.sql)), message, "write a SELECT"
        )
    return query


def _statement_starts(sql: str) -> Iterator[int]:
    """Where each statement after the first begins."""
    after_semicolon = False
    for token in Spark().tokenize(sql):
        if token.token_type is TokenType.SEMICOLON:
            after_semicolon = True
        elif after_semicolon:
            after_semicolon = False
            yield token.start


def _first_token(sql: str) -> int:
    return int(Spark().tokenize(sql)[0].start)


def _statement(query: exp.Expr) -> str:
    if isinstance(query, exp.Command):
        return str(query.this).upper()
    name = type(query).__name__.upper()
    return (
        f"the expression {query.sql(DIALECT)[:40]}" if isinstance(query, exp.Alias | exp.Condition) else name
    )


def _syntax(template: Template, rendered: Rendered, error: ParseError) -> ConfigError:
    facts = error.errors[0] if error.errors else {}
    word = str(facts.get("highlight") or "")
    line, column = int(facts.get("line") or 1), int(facts.get("col") or 1)
    message = str(facts.get("description") or error).partition(" but got <Token")[0].rstrip(".")
    if message == "Invalid expression / Unexpected token":
        message = "not expected here"
    elif message.startswith("Required keyword:"):
        message = "something is missing here"
    at = f"SQL: near {word[:40]!r}: " if word else "SQL: "
    place = rendered.template_line(line, max(1, column - len(word) + 1))
    return template_error(template.file, place, f"{at}{message[0].lower()}{message[1:]}")


def _problems(template: Template, rendered: Rendered, query: exp.Expr, given: set[_Key]) -> Iterator[Problem]:
    def problem(node: exp.Expr, message: str, suggestion: str) -> Problem:
        line = rendered.line_at(int(_start(node)))
        return Problem(template.file, line, 0, "", message, suggestion)

    for node in query.walk():
        match node:
            case exp.Table():
                key = _key(node)
                if (
                    _is_row_maker(node)
                    or key in given
                    or key in _ctes_at(node)
                    or node.find_ancestor(exp.Hint)
                ):
                    continue
                if any(key == (cte.alias.casefold(),) for cte in query.find_all(exp.CTE)):
                    hint = "define it above, in the same WITH or around; WITH RECURSIVE may name itself"
                    yield problem(node, f"{node.name} is not defined at this place", hint)
                    continue
                shown = node.sql(DIALECT, identify=False).partition(" AS ")[0]
                meant = ".".join(part.name for part in node.parts)
                hint = f"write {{{{ ref('{meant}') }}}}, or landing_zone('…') for files"
                yield problem(node, f"{shown} is not read by ref or landing_zone", hint)
            case exp.Select() if not node.expressions:
                yield problem(node, "SELECT without columns", "name them, or write *")
            case exp.QueryTransform():
                yield problem(node, "TRANSFORM … USING runs a program", "write it as a pipeline.py")
            case exp.Anonymous() if node.name.casefold() in _FORBIDDEN:
                yield problem(node, f"{node.name} runs JVM code", "write it as a pipeline.py")


def _ctes_at(node: exp.Expr) -> set[_Key]:
    """Those that are defined where the node stands: around it, and in a WITH only above it. Spark would look
    up any other name in the catalog, which the template may not read."""
    found: set[_Key] = set()
    inside: exp.CTE | None = None
    for above in _ancestors(node):
        if isinstance(above, exp.CTE):
            inside = above
        elif isinstance(above, exp.With):
            for cte in above.expressions:
                if cte is inside and not above.recursive:
                    break
                found.add((cte.alias.casefold(),))
                if cte is inside:
                    break
        elif (own := above.args.get("with_")) is not None and all(
            cte is not inside for cte in own.expressions
        ):
            found |= {(cte.alias.casefold(),) for cte in own.expressions}
    return found


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _is_row_maker(table: exp.Table) -> bool:
    made_by = table.this
    if isinstance(made_by, exp.Anonymous):
        return made_by.name.casefold() in _ROW_MAKERS
    return isinstance(made_by, exp.Func) and made_by.sql_name().casefold() in _ROW_MAKERS


def _table(name: str) -> exp.Table:
    return exp.to_table(name, dialect=DIALECT)


def _key(table: exp.Table) -> _Key:
    return tuple(part.name.casefold() for part in table.parts)


def _start(node: exp.Expr) -> int:
    return next((int(part.meta["start"]) for part in node.walk() if "start" in part.meta), 0)


class UnclosedText(TemplateFault):
    """`offset` is where the quote or comment begins."""

    def __init__(self, offset: int):
        super().__init__("a quote or comment is not closed")
        self.offset = offset


def without_comments(sql: str) -> str:
    """With spaces in their place, so that offsets and lines stay the same. Hints (`/*+ … */`) are kept."""
    kept: list[str] = []
    at = 0
    while found := _PARTS.search(sql, at):
        start, end = found.span()
        if found["block"]:
            end = _block_end(sql, start)
        elif found["line"] is None and not _is_closed(found["raw"] or found[0]):
            raise UnclosedText(start)
        kept.append(sql[at:start])
        is_comment = found["line"] is not None or found["block"] is not None
        kept.append(_NOT_LINE_END.sub(" ", sql[start:end]) if is_comment else found[0])
        at = end
    kept.append(sql[at:])
    return "".join(kept)


def _is_closed(quoted: str) -> bool:
    return len(quoted) > 1 and quoted[-1] == quoted[0]


def _block_end(sql: str, start: int) -> int:
    """Comments may be nested, as in Spark."""
    depth = 0
    for mark in _BLOCK_MARK.finditer(sql, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise UnclosedText(start)
