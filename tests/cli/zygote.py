"""Has the whole command line loaded and forks for each command: a start costs milliseconds, not a second.

It reads orders as lines of JSON (words, environment, files) and answers each with an exit status.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any

from strandline.cli.app import COMMANDS, GROUPS, PASSED_THROUGH
from strandline.cli.main import main


def serve() -> None:
    """Obey until no more orders come."""
    for module in {*(name for name, _ in COMMANDS.values()), *GROUPS.values(), *PASSED_THROUGH.values()}:
        importlib.import_module(f"strandline.cli.{module}")
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(_run(json.loads(line)))
        _, status = os.waitpid(pid, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _run(order: dict[str, Any]) -> int:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(order[name], flags), number)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["strandline", *order["words"]]
    status: Any = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return int(status or 0)


if __name__ == "__main__":
    serve()
