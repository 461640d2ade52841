"""The configuration of a broker: options, files, profile defaults, and what may change while it runs."""
