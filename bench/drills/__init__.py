"""The drills of docs/drills.md, done by the page's own commands, and drawn: `python -m bench.drills`."""
