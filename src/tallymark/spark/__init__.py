"""The only place that makes Spark sessions, and the only one that knows of Java and JARs."""

from tallymark.spark.java import Java, find_java
from tallymark.spark.sessions import Sessions
from tallymark.spark.settings import AVRO_PACKAGE, DELTA_PACKAGE

__all__ = ["AVRO_PACKAGE", "DELTA_PACKAGE", "Java", "Sessions", "find_java"]
