"""Ends a ZooKeeper session whose owner lives, as ZooKeeper does when it has not heard of it for too long."""

from contextlib import suppress

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.patience import HANG_S


def end_session(hosts: str, credentials: tuple[int, bytes]) -> None:
    """Return once ZooKeeper does not know the session any more.

    It is taken up, and closed. In between its owner may take it back, and then it is not closed: this is done
    again, until whoever asks for it is given another one.
    """
    is_known = True
    while is_known:
        thief = KazooClient(hosts=hosts, client_id=credentials, timeout=4)
        with suppress(KazooException):
            thief.start(HANG_S)
        found = thief.client_id
        is_known = found is not None and found[0] == credentials[0]
        thief.stop()
        thief.close()
