"""Column-level lineage of SQL pipelines, read from their queries without running anything.

It traces the query of a first load. An input's columns are known if a SQL pipeline with known columns fills
it. Columns of files and of Python are known only to Spark, so a `SELECT *` from them stays a star.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope, traverse_scope

from tallymark.config.combinations import keeps_history
from tallymark.config.load_project import LoadedProject
from tallymark.config.pipeline_folders import Pipeline
from tallymark.config.query_files import Language, Transform
from tallymark.errors import ConfigError
from tallymark.model.graph import (
    ALL_COLUMNS,
    ColumnLineage,
    ColumnSource,
    Graph,
    InputKind,
    PipelineLineage,
)
from tallymark.model.settings import Strategy
from tallymark.templates import Context, Template, render

DIALECT = "spark"
_A_RUN = datetime(2000, 1, 1, tzinfo=UTC)


def trace_columns(project: LoadedProject, graph: Graph) -> dict[str, PipelineLineage]:
    """Of every pipeline, by name, in the order in which they run."""
    known: dict[str, tuple[str, ...]] = {}
    traced: dict[str, PipelineLineage] = {}
    for name in (name for level in graph.levels() for name in level):
        pipeline = project.pipelines[name]
        traced[name] = _trace(pipeline, known)
        if columns := _table_columns(pipeline, traced[name]):
            known[name] = columns
    return traced


@dataclass
class _Relations:
    """Names for the inputs of one query, as sqlglot can have them."""

    inputs: dict[str, tuple[InputKind, str]] = field(default_factory=dict)

    def ref(self, name: str) -> str:
        return self._relation(InputKind.PIPELINE, name)

    def zone(self, name: str) -> str:
        return self._relation(InputKind.LANDING_ZONE, name)

    def _relation(self, kind: InputKind, name: str) -> str:
        for relation, known in self.inputs.items():
            if known == (kind, name):
                return relation
        relation = f"tallymark_input_{len(self.inputs)}"
        self.inputs[relation] = (kind, name)
        return relation


def _trace(pipeline: Pipeline, known: Mapping[str, tuple[str, ...]]) -> PipelineLineage:
    transform = pipeline.transform
    if transform is None:
        return PipelineLineage(pipeline.name, unknown="its columns come from files")
    if transform.language is Language.PYTHON:
        return PipelineLineage(pipeline.name, unknown="its columns come from Python")
    relations = _Relations()
    try:
        columns = tuple(_columns(_first_query(pipeline, transform, relations), relations, known))
    except ConfigError as error:
        return PipelineLineage(pipeline.name, unknown=error.message)
    except Exception as error:  # sqlglot's analysis raises more than its own kinds
        return PipelineLineage(pipeline.name, unknown=f"the query could not be analyzed: {error}")
    return PipelineLineage(pipeline.name, columns)


def query_errors(project: LoadedProject) -> Iterator[ConfigError]:
    """Errors in the query of each SQL pipeline's first load."""
    for pipeline in project.pipelines.values():
        transform = pipeline.transform
        if transform is not None and transform.language is Language.SQL:
            try:
                _first_query(pipeline, transform, _Relations())
            except ConfigError as error:
                yield error


def _first_query(pipeline: Pipeline, transform: Transform, relations: _Relations) -> str:
    context = Context(
        strategy=pipeline.settings.strategy,
        run_started_at=_A_RUN,
        refs=relations.ref,
        zones=relations.zone,
        this="tallymark_this",
        watermark_column=pipeline.settings.watermark_column,
        variables=pipeline.variables,
    )
    return render(Template(transform.file, transform.text), context).sql


def _columns(
    sql: str, relations: _Relations, known: Mapping[str, tuple[str, ...]]
) -> Iterator[ColumnLineage]:
    inputs = {
        relation: known[name]
        for relation, (kind, name) in relations.inputs.items()
        if kind is InputKind.PIPELINE and name in known
    }
    schema: dict[str, object] = {
        relation: dict.fromkeys(names, "string") for relation, names in inputs.items()
    }
    spelling = {column.casefold(): column for names in inputs.values() for column in names}
    written = parse_one(sql, dialect=DIALECT)
    names = _output_names(written)
    _name_the_only_table(written, schema)
    query = qualify(
        written,
        schema=schema,
        dialect=DIALECT,
        validate_qualify_columns=False,
        allow_partial_qualification=True,
        identify=False,
    )
    scope = build_scope(query)
    if scope is None or not isinstance(query, exp.Query):
        raise SqlglotError("it has no columns to follow")
    for number, select in enumerate(query.selects):
        if select.is_star:
            yield ColumnLineage(ALL_COLUMNS, tuple(_all_columns(select, scope, relations)))
            continue
        found = lineage(
            select.alias_or_name, query, schema=schema, dialect=DIALECT, scope=scope, trim_selects=False
        )
        name = names[number] if len(names) == len(query.selects) else _spelt(select.alias_or_name, spelling)
        sources = (replace(one, column=_spelt(one.column, spelling)) for one in _sources(found, relations))
        yield ColumnLineage(name, tuple(sources))


def _spelt(column: str, spelling: Mapping[str, str]) -> str:
    """As the input has it: sqlglot's analysis makes all names lower case."""
    return spelling.get(column.casefold(), column)


def _output_names(query: exp.Expr) -> list[str]:
    """As they are written, which sqlglot's analysis does not keep; Spark names an expression by its text."""
    selects = query.selects if isinstance(query, exp.Query) else []
    return [select.alias_or_name or select.sql(DIALECT) for select in selects]


def _name_the_only_table(query: exp.Expr, schema: Mapping[str, object]) -> None:
    """A column without a table, in a SELECT from one table whose columns are not known, can only be its
    own, unless an alias of the same SELECT has its name."""
    for scope in traverse_scope(query):
        sources = [(name, source) for name, (_, source) in scope.selected_sources.items()]
        if len(sources) != 1 or not isinstance(scope.expression, exp.Select):
            continue
        ((name, table),) = sources
        if not isinstance(table, exp.Table) or table.name in schema:
            continue
        aliases = {select.alias for select in scope.expression.selects}
        for column in scope.columns:
            if not column.table and column.name not in aliases and column.parent_select is scope.expression:
                column.set("table", exp.to_identifier(name))


def _sources(found: Node | dict[str, Node], relations: _Relations) -> Iterator[ColumnSource]:
    nodes = found.values() if isinstance(found, dict) else [found]
    sources: dict[ColumnSource, None] = {}
    for leaf in (node for start in nodes for node in start.walk() if not node.downstream):
        column = exp.to_column(leaf.name, dialect=DIALECT).name if "." in leaf.name else leaf.name
        match leaf.source:
            case exp.Table() as table if table.name in relations.inputs:
                sources[ColumnSource(*relations.inputs[table.name], column.strip('"'))] = None
            case exp.Placeholder():
                sources[ColumnSource(InputKind.UNKNOWN, "", column.strip('"'))] = None
            case _:
                pass  # a constant, or rows that the query makes itself
    yield from sources


def _all_columns(star: exp.Expr, scope: Scope, relations: _Relations) -> Iterator[ColumnSource]:
    """Of the input that the star names, else of all of them, through subqueries down to tables."""
    wanted = star.args.get("table")
    names = [wanted.name] if isinstance(wanted, exp.Identifier) else list(scope.selected_sources)
    tables: dict[str, None] = {}
    for source in (scope.sources.get(name) for name in names):
        found = source.expression.find_all(exp.Table) if isinstance(source, Scope) else [source]
        tables |= {table.name: None for table in found if isinstance(table, exp.Table)}
    for table in tables:
        if table in relations.inputs:
            yield ColumnSource(*relations.inputs[table], ALL_COLUMNS)


def _table_columns(pipeline: Pipeline, traced: PipelineLineage) -> tuple[str, ...]:
    """The columns of the pipeline's table; empty if its query does not tell them."""
    names = [column.column for column in traced.columns]
    if not names or ALL_COLUMNS in names or pipeline.settings.strategy is Strategy.CDC:
        return ()
    if keeps_history(pipeline.config):
        history = pipeline.settings.scd2
        names += [history.valid_from, history.valid_to, *filter(None, [history.current_flag])]
    return tuple(dict.fromkeys(names))
