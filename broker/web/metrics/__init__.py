"""`/metrics`: what a broker counts and measures, in the text formats of Prometheus."""
