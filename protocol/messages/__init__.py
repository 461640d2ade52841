"""Kafka's messages, one file per family, each declared once for all its versions."""
