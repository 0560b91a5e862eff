"""All benchmarks of `make bench`, one after the other."""

from __future__ import annotations

import many_files

if __name__ == "__main__":
    many_files.main(10_000)
