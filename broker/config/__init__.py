"""The configuration of a broker: options, files, defaults of profiles, and what may change while it runs."""
