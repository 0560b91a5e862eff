"""Writes those parts of docs/reference that come from the code; `make docs` runs it."""

from pathlib import Path

from destination_guide import with_engine_members
from tallymark.config.keys import write_reference
from tallymark.destinations.registry import with_support
from tallymark.model.documents import as_text, schema

REFERENCE = Path(__file__).parent / "reference"
GUIDE = Path(__file__).parent / "how-to" / "add-a-destination.md"

if __name__ == "__main__":
    write_reference(REFERENCE)
    page = REFERENCE / "destinations.md"
    page.write_text(with_support(page.read_text(encoding="utf-8")), encoding="utf-8")
    (REFERENCE / "documents.schema.json").write_text(as_text(schema()), encoding="utf-8")
    GUIDE.write_text(with_engine_members(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
