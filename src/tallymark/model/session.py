"""What a Spark session says about itself to those who are handed one."""

from __future__ import annotations

# `true` where a path means to Spark what it means to this process: neither on a Connect server, which may be
# another machine, nor where Spark's paths are those of a store.
SHARES_FILES = "spark.sql.tallymark.sharesFiles"
