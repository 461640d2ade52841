"""`strandline`: the entry point of the command line.

`strandline broker` is handled first and apart, so that a broker starts without loading what only people at a
terminal need. Exit status: 0; 1 the environment (port, lock, ZooKeeper, Java) or a failed check; 2 wrong
usage or configuration.
"""

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with its status."""
    if sys.argv[1:2] == ["broker"]:
        spare_imports()
        gc.disable()  # until all modules are loaded: hardly any of that is ever garbage
        from .serve import main as serve

        sys.exit(serve(sys.argv[2:]))
    try:
        from .app import run

        status = run()
    except KeyboardInterrupt:  # while modules are loaded; commands have more to say
        status = 130
    sys.exit(status)


def spare_imports() -> None:
    """Skip what libraries load only for pretty printing or plugins: it costs tenths of a second."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # structlog does without it


if __name__ == "__main__":
    main()
