"""The graph of a project: unknown names, circles, order, selection. Starts no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tallymark.config.load_project import LoadedProject, load_project
from tallymark.errors import ConfigError
from tallymark.flow.inspect.findings import validate
from tallymark.flow.inspect.graph import build_graph
from tallymark.flow.select import select_pipelines
from tallymark.model.graph import Graph

FILES = "source: {files: landing/%s/*.csv}\n"
Write = Callable[..., LoadedProject]


@pytest.fixture
def project(tmp_path: Path) -> Write:
    """A project of SQL pipelines by name; a text that begins with `source:` is a config.yaml."""

    def write(pipelines: Mapping[str, str], settings: str = "") -> LoadedProject:
        (tmp_path / "tallymark.yaml").write_text(settings)
        for name, text in pipelines.items():
            kind = "config.yaml" if text.startswith("source:") else "pipeline.sql"
            kind = "pipeline.py" if text.startswith("result") else kind
            folder = tmp_path / "pipelines" / name.replace(".", "/")
            folder.mkdir(parents=True)
            (folder / kind).write_text(text)
        return load_project(tmp_path, {})

    return write


def reading(*names: str) -> str:
    return "SELECT 1\n" + "\n".join(f"-- {{{{ ref('{name}') }}}}" for name in names)


def problems(project: LoadedProject) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        build_graph(project)
    return caught.value.message.splitlines()


def test_levels_and_neighbours(project: Write) -> None:
    graph = build_graph(
        project(
            {
                "silver.orders": FILES % "orders",
                "silver.customers": FILES % "customers/*",
                "silver.elsewhere": "source: {files: [other/*.csv, s3a://b/x.csv]}",
                "gold.daily": reading("silver.orders", "silver.customers", "silver.orders"),
                "gold.top": reading("gold.daily") + "{{ landing_zone('codes/eu') }}",
                "gold.py": "result = ref('gold.daily').join(landing_zone('codes'))",
            }
        )
    )
    assert graph.levels() == (
        ("silver.customers", "silver.elsewhere", "silver.orders"),
        ("gold.daily",),
        ("gold.py", "gold.top"),
    )
    nodes = {node.pipeline: node for node in graph.nodes()}
    assert nodes["gold.daily"].reads == ("silver.orders", "silver.customers")
    assert nodes["gold.daily"].read_by == ("gold.py", "gold.top")
    assert {name: node.landing_zones for name, node in nodes.items()} == {
        "silver.orders": ("orders",),
        "silver.customers": ("customers",),
        "silver.elsewhere": (),
        "gold.daily": (),
        "gold.top": ("codes/eu",),
        "gold.py": ("codes",),
    }
    assert [str(nodes[name].kind) for name in ("silver.orders", "gold.top", "gold.py")] == [
        "files",
        "sql",
        "python",
    ]
    assert [node.pipeline for node in graph.nodes(["gold.top", "silver.orders"])] == [
        "silver.orders",
        "gold.top",
    ]


def test_landing_zones_may_be_elsewhere(project: Write) -> None:
    files = "source: {files: 's3a://lake/in/orders/*.csv'}"
    graph = build_graph(project({"orders": files}, "landing_zones: s3a://lake/in/"))
    assert graph.nodes()[0].landing_zones == ("orders",)


def test_unknown_names(project: Write) -> None:
    found = project(
        {
            "silver.orders": (FILES % "orders") + "table: silver.all_orders\n",
            "gold.a": reading("silver.ordrs", "silver.all_orders", "orders", "nothing.like.it"),
            "gold.b": "SELECT * FROM {{ landing_zone('silver.orders') }}",
        }
    )
    place = "pipelines/gold/a/pipeline.sql"
    assert problems(found) == [
        f"{place}:2: there is no pipeline silver.ordrs; did you mean silver.orders?",
        f"{place}:3: there is no pipeline silver.all_orders; "
        "the table silver.all_orders is made by pipeline silver.orders: write ref('silver.orders')",
        f"{place}:4: there is no pipeline orders; did you mean silver.orders?",
        f"{place}:5: there is no pipeline nothing.like.it; the project has gold.a, gold.b and silver.orders",
        "pipelines/gold/b/pipeline.sql:1: silver.orders is a pipeline, and a landing zone is a folder of files; "
        "write ref('silver.orders')",
    ]


def test_a_pipeline_that_reads_itself(project: Write) -> None:
    assert problems(project({"gold.a": reading("gold.a")})) == [
        "pipelines/gold/a/pipeline.sql:2: gold.a reads itself; "
        "use `this` for its own table, inside {% if table_exists %}"
    ]


def test_a_circle_is_shown_whole_and_once(project: Write) -> None:
    found = project(
        {
            "d": reading("b"),
            "c": reading("x", "a"),
            "b": reading("c"),
            "a": reading("b"),
            "x": FILES % "x",
            "after": reading("d"),
            "p": reading("q"),
            "q": reading("p"),
        }
    )
    assert problems(found) == [
        "pipelines/a/pipeline.sql:2: pipelines depend on each other in a cycle: a → b → c → a; remove one of these refs",
        "pipelines/p/pipeline.sql:2: pipelines depend on each other in a cycle: p → q → p; remove one of these refs",
    ]


def test_a_circle_in_a_branch_that_is_not_taken(project: Write) -> None:
    branch = "SELECT 1 {% if false %}{{ ref('b') }}{% endif %}"
    assert "a → b → a" in problems(project({"a": branch, "b": reading("a")}))[0]


def test_problems_of_templates_come_with_those_of_the_graph(project: Write) -> None:
    found = problems(project({"a": "SELECT {{ nope }}", "b": reading("c"), "e": "result = ref(x)"}))
    assert [line.partition(":")[0] for line in found] == [
        "pipelines/a/pipeline.sql",
        "pipelines/b/pipeline.sql",
        "pipelines/e/pipeline.py",
    ]


@pytest.mark.timeout(10)
def test_queries_that_cannot_be_asked_are_found_before_anything_runs(project: Write) -> None:
    texts = {"a.gone": "DELETE FROM x", "a.twice": "SELECT 1;\nSELECT 2", "a.good": "SELECT 1 AS one"}
    root = project({name: f"-- @merge_strategy: full_refresh\n{text}" for name, text in texts.items()}).root
    found = {finding.subject: finding.detail for finding in validate(root) if not finding.ok}
    assert found == {
        "pipelines/a/gone/pipeline.sql:2": "is not a query: it is DELETE",
        "pipelines/a/twice/pipeline.sql:3": "a second statement begins here",
    }


def test_a_long_chain_and_a_large_circle() -> None:
    chain = Graph({f"p{n:05}": (f"p{n - 1:05}",) if n else () for n in range(2000)})
    assert len(chain.levels()) == 2000
    assert len(chain.upstream(["p01999"])) == 1999
    circle = Graph({f"p{n:05}": (f"p{(n + 1) % 2000:05}",) for n in range(2000)})
    assert circle.levels() == ()
    assert [len(found) for found in circle.cycles()] == [2000]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ([], ["a", "b", "c", "d", "e"]),
        (["c"], ["c"]),
        (["c", "a"], ["c", "a"]),
        (["c+"], ["c", "d"]),
        (["+c"], ["a", "b", "c"]),
        (["+c+"], ["a", "b", "c", "d"]),
        (["+[ae]"], ["a", "e"]),
        (["a+"], ["a", "c", "d"]),
        (["+d", "e"], ["a", "b", "e", "c", "d"]),
        (["*+"], ["a", "b", "e", "c", "d"]),
    ],
)
def test_selection(project: Write, wanted: list[str], chosen: list[str]) -> None:
    found = project(
        {
            "a": FILES % "a",
            "b": FILES % "b",
            "c": reading("a", "b"),
            "d": reading("c"),
            "e": FILES % "e",
        }
    )
    assert [pipeline.name for pipeline in select_pipelines(found, wanted)] == chosen


@pytest.mark.parametrize("wanted", ["+", "++", "+cc", "cc+", "+x*+", ""])
def test_selection_of_nothing(project: Write, wanted: str) -> None:
    found = project({"c": FILES % "c"})
    with pytest.raises(ConfigError, match="there is no pipeline"):
        select_pipelines(found, [wanted])
