"""Whether a Docker engine listens.

Asked before the Docker library is, which leaves its socket open where nobody does, until the collector
finds it and warns in some other test.
"""

import socket

import docker

PATIENCE_S = 20.0


def refusal(docker_host: str | None) -> str:
    """Why nobody listens at the address in DOCKER_HOST, or nothing. By ssh it is not looked at."""
    address = docker.utils.parse_host(docker_host)
    scheme, _, place = address.partition("://")
    if scheme == "ssh":
        return ""
    unix = scheme == "http+unix"
    host, _, port = place.partition("/")[0].rpartition(":")
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as probe:
        probe.settimeout(PATIENCE_S)
        try:
            probe.connect(place if unix else (host, int(port)))
        except OSError as error:
            return f"{address}: {error}"
    return ""
