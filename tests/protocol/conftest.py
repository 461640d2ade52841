"""Random messages for tests that must hold for all of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from samples import sample


@pytest.fixture(scope="session")
def sampled() -> Callable[[type[Any], int, Random], Any]:
    """The function that makes a random message of a class and version."""
    return sample
