"""The rendered text is one query, and it reads only what the template asked for by ref and landing_zone.

sqlglot reads it as Spark SQL. It is more lenient than Spark: what passes here may still be refused there,
and the error then points to a line of the query, which `Rendered.template_line` maps back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp, parse
from sqlglot.dialects import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from tallymark.config.problem import Problem, config_error
from tallymark.errors import ConfigError
from tallymark.templates.comments import NotClosed, without_comments
from tallymark.templates.context import Rendered, Template
from tallymark.templates.faults import wrong

DIALECT = "spark"
# They run programs or read the process's environment; a transform has no business there.
_FORBIDDEN = {"reflect", "java_method", "try_reflect"}
# Functions that stand where a table does and make their rows themselves.
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
_Key = tuple[str, ...]

# A statement that sqlglot does not know is refused below, in one error: no warning besides.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def checked(template: Template, rendered: Rendered, relations: Iterable[str]) -> Rendered:
    """The query without comments and semicolons. `relations` are those that the template was given."""
    try:
        rendered = replace(rendered, sql=without_comments(rendered.sql))
    except NotClosed as error:
        raise wrong(template.file, rendered.line_at(error.offset), error.message) from None
    if "${" in rendered.sql:
        line = rendered.line_at(rendered.sql.index("${"))
        hint = "write var('name'), and ${NAME} in vars; in a text write \\u0024{"
        raise wrong(
            template.file, line, "Spark would replace ${…} in the query by a setting or variable", hint
        )
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
        raise wrong(template.file, 0, f"SQL: {error}") from None
    if not tokens:
        raise wrong(template.file, 1, "holds no query", "write a SELECT")
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
        raise wrong(template.file, 0, "is nested too deeply", "divide it by WITH") from None
    except Exception as error:
        # The parser lets other errors through, such as IndexError for `map('a')`.
        raise wrong(template.file, 0, f"cannot be read as SQL ({type(error).__name__})") from None
    if len(statements) > 1:
        second = next(at for at in _statement_starts(rendered.sql))
        hint = "one pipeline makes one table: put the others into pipelines of their own"
        raise wrong(template.file, rendered.line_at(second), "a second statement begins here", hint)
    (query,) = statements
    if not isinstance(query, exp.Query | exp.Values):
        message = f"is not a query: it is {_statement(query)}"
        raise wrong(template.file, rendered.line_at(_first_token(rendered.sql)), message, "write a SELECT")
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
    return wrong(template.file, place, f"{at}{message[0].lower()}{message[1:]}")


def _problems(template: Template, rendered: Rendered, query: exp.Expr, given: set[_Key]) -> Iterator[Problem]:
    def problem(node: exp.Expr, message: str, suggestion: str) -> Problem:
        line = rendered.line_at(int(_start(node)))
        return Problem(template.file, line, 0, "", message, suggestion)

    known = given | {(cte.alias.casefold(),) for cte in query.find_all(exp.CTE)}
    for node in query.walk():
        match node:
            case exp.Table():
                if _is_row_maker(node) or _key(node) in known or node.find_ancestor(exp.Hint):
                    continue
                shown = node.sql(DIALECT, identify=False).partition(" AS ")[0]
                meant = ".".join(part.name for part in node.parts)
                hint = f"write {{{{ ref('{meant}') }}}}, or landing_zone('…') for files"
                yield problem(node, f"{shown} is read past Tallymark", hint)
            case exp.Select() if not node.expressions:
                yield problem(node, "SELECT without columns", "name them, or write *")
            case exp.QueryTransform():
                yield problem(node, "TRANSFORM … USING runs a program", "write it as a pipeline.py")
            case exp.Anonymous() if node.name.casefold() in _FORBIDDEN:
                yield problem(node, f"{node.name} runs code of the JVM", "write it as a pipeline.py")


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
