"""Strandline: a replicated log broker that speaks the Apache Kafka wire protocol.

The repository root is this package (`docs/architecture.md`, *Packaging*). Users import from
`strandline.client` and `strandline.testing`; everything else serves the brokers.
"""

__version__ = "0.1.0"
