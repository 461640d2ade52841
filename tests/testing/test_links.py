"""Proxies between brokers and clients: whoever comes, and whenever, no connection is left to the process."""

import asyncio
import socket
from pathlib import Path

import pytest

from strandline.local.cluster import LocalCluster
from strandline.testing.faults.links import AT_ONCE, HOST, Links


@pytest.mark.parametrize("gone", [False, True])
def test_who_comes_while_the_proxies_end_is_hung_up_on(tmp_path: Path, gone: bool) -> None:
    """Also who has gone again by then, and has no address any more."""
    links = Links(LocalCluster(tmp_path, 1))
    with socket.create_server((HOST, 0)) as door, socket.create_connection(door.getsockname()) as client:
        accepted, _ = door.accept()
        if gone:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            client.close()

        async def come() -> None:
            reader, writer = await asyncio.open_connection(sock=accepted)
            links._accepted(links._proxies[0], reader, writer)
            await links._end()

        links._thread.run(come)
        links.close()
        assert accepted.fileno() == -1
