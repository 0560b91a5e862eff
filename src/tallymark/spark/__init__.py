"""The only place that makes Spark sessions, and the only one that knows of Java and JARs."""

from tallymark.spark.jars import AVRO_PACKAGE
from tallymark.spark.java import Java, find_java
from tallymark.spark.sessions import Sessions

__all__ = ["AVRO_PACKAGE", "Java", "Sessions", "find_java"]
