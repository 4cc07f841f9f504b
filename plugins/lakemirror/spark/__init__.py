"""Spark as a way to spread stages over a cluster: the only part of the library that imports pyspark."""
