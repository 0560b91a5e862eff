"""Queries with placeholders: `pipeline.sql` as a sandboxed Jinja template, and what a transform reads.

references(template)        the names that it may ask for, found without running it
names_used(template)        every name of the vocabulary, and its line
render(template, context)   the query, checked to be one SELECT, and the names that it asked for
python_references(file, …)  the same names of a pipeline.py
render_quality_test(…)      the query of a quality test, which knows less
"""

from tallymark.templates.context import Context, Rendered, Template, Watermark
from tallymark.templates.python import python_references
from tallymark.templates.quality import render_quality_test
from tallymark.templates.references import Reference, References, names_used, references
from tallymark.templates.render import render

__all__ = [
    "Context",
    "Reference",
    "References",
    "Rendered",
    "Template",
    "Watermark",
    "names_used",
    "python_references",
    "references",
    "render",
    "render_quality_test",
]
