"""`pipeline.sql` as a sandboxed Jinja template, and what a transform reads.

references(template)         the inputs of a pipeline.sql, found without running it
python_references(template)  the inputs of a pipeline.py, likewise
names_used(template)         every name that the template uses, and its line
render(template, context)    one query, checked, and the inputs that it asked for
render_quality_test(…)       the query of a quality test, which knows less
"""

from tallymark.templates.context import Context, Rendered, Template, TypedValue
from tallymark.templates.references import (
    Reference,
    References,
    names_used,
    python_references,
    references,
)
from tallymark.templates.render import render, render_quality_test

__all__ = [
    "Context",
    "Reference",
    "References",
    "Rendered",
    "Template",
    "TypedValue",
    "names_used",
    "python_references",
    "references",
    "render",
    "render_quality_test",
]
