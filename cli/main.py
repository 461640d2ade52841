"""`strandline`: the door to everything a person types.

`strandline broker` is looked at first and by itself: a broker starts without loading what only people
at a terminal need. Exit status: 0; 1 the environment (port, lock, ZooKeeper, Java) or a failed check;
2 wrong usage or configuration.
"""

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with its status."""
    if sys.argv[1:2] == ["broker"]:
        spare_imports()
        gc.disable()  # until all is loaded: hardly anything of it is ever garbage
        from .serve import main as serve

        sys.exit(serve(sys.argv[2:]))
    from .app import run

    sys.exit(run())


def spare_imports() -> None:
    """Keep out what libraries load only to print beautifully or to be extended: a start counts in tenths."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # structlog does without it


if __name__ == "__main__":
    main()
