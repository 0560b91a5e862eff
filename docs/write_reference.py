"""Writes those parts of docs/reference that come from the code; `make docs` runs it."""

from pathlib import Path

from tallymark.config.keys import write_reference
from tallymark.destinations.registry import with_support
from tallymark.model.documents import as_text, schema

REFERENCE = Path(__file__).parent / "reference"

if __name__ == "__main__":
    write_reference(REFERENCE)
    page = REFERENCE / "destinations.md"
    page.write_text(with_support(page.read_text(encoding="utf-8")), encoding="utf-8")
    (REFERENCE / "documents.schema.json").write_text(as_text(schema()), encoding="utf-8")
