"""Random messages for tests that must hold for all of them."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.protocol.samples import sample


@pytest.fixture(scope="session")
def sampled() -> Callable[[type[Any], int, Random], Any]:
    """The function that makes a random message of a class and version."""
    return sample
