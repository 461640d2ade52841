"""For pytest in aiokafka's environment: fixtures that would start Docker hand out the cluster that runs.

A hook and not a fixture: the suite's own conftest.py is nearer to its tests than any plugin.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HOST, PORT = os.environ["STRANDLINE_HOST"], int(os.environ["STRANDLINE_PORT"])
VERSION = "3.9.0"
SERVER = SimpleNamespace(
    host=HOST,
    port=PORT,
    ssl_port=0,
    sasl_plain_port=0,
    sasl_ssl_port=0,
    container=None,
    hosts=[f"{HOST}:{PORT}"],
)
INSTEAD: dict[str, Any] = {
    "docker": None,
    "kafka_image": f"external:{VERSION}",
    "ssl_folder": Path("no-certificates"),
    "kafka_server": SERVER,
    "acl_manager": None,
    "kafka_config": None,
    "kerberos_utils": None,
}


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    if fixturedef.argname not in INSTEAD:
        return None
    value = INSTEAD[fixturedef.argname]
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value if value is not None else False  # None would ask the next hook


def pytest_configure(config: Any) -> None:
    config.option.docker_image = INSTEAD["kafka_image"]
