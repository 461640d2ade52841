"""What the package does only with one of its extras (pyproject.toml), told in one line where it is missing.

`pip install strandline` alone brings the broker, the clients and the command line. Spark, Arrow and the jars
of ZooKeeper are half a gigabyte that brokers have no use for, so they come with extras.
Left to others: to ask (`require`) before they import, or start, what comes with an extra.
"""

import sys
from importlib.util import find_spec


class ExtraMissing(ModuleNotFoundError):
    """A package is not installed that comes with an extra; the message says how to get it. Exit status 1."""


def require(package: str, extra: str, purpose: str) -> None:
    """Raise ExtraMissing if `package`, of the extra `extra`, is not installed. It is not imported.

    `purpose` begins the message: who or what needs the package.
    """
    if sys.modules.get(package) is None and find_spec(package) is None:
        raise ExtraMissing(
            f"{purpose} needs {package}, which is not installed: pip install 'strandline[{extra}]'",
            name=package,
        )
