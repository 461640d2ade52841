"""`strandline`: the door to everything a person types.

`strandline broker` is looked at first and by itself: a broker starts without loading what only people
at a terminal need. Exit status: 0; 1 the environment (port, lock, ZooKeeper, Java) or a failed check;
2 wrong usage or configuration.
"""

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    if sys.argv[1:2] == ["broker"]:
        from .serve import main as serve

        sys.exit(serve(sys.argv[2:]))
    from .app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
