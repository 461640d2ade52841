"""For pytest in a suite's own environment: tests that are left out by name are not run."""

import os
from fnmatch import fnmatchcase
from typing import Any


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    patterns = os.environ.get("STRANDLINE_LEFT_OUT", "").splitlines()
    out = [item for item in items if any(fnmatchcase(item.nodeid, one) for one in patterns)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
