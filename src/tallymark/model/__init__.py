"""Frozen facts that every layer shares. No Spark, no I/O."""
