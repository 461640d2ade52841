"""The HTTP server of a broker: health, readiness, metrics; for people, probes and Prometheus."""
