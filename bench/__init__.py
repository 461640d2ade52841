"""Benchmarks beside Apache Kafka: the same drivers, the same machine, the same sitting."""
