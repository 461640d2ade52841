"""ZooKeeper sessions of one broker; creates the chroot if it does not exist yet.

Left to others: the session itself (zookeeper/kazoo_client.py), what is kept in ZooKeeper
(zookeeper/znodes.py).
"""

from collections.abc import Callable

from ..zookeeper import znodes
from ..zookeeper.client import ZkClient
from ..zookeeper.kazoo_client import KazooZkClient
from .config.broker import BrokerConfig
from .registration import Credentials


class ZkSessions:
    """Makes the ZooKeeper client of a broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self.on_fatal: Callable[[BaseException], None] = _nobody_listens
        self._config = config.zookeeper

    def new(self, previous: Credentials | None) -> ZkClient:
        """A session that is not open yet. Opening it ends `previous`, that of a killed predecessor."""
        return _RootedZkClient(
            self._config.hosts + self._config.chroot,
            self._config.session_timeout_ms,
            connect_timeout_s=self._config.connection_timeout_ms / 1000,
            previous_session=previous,
            on_fatal=lambda failure: self.on_fatal(failure),
            chroot=self._config.chroot,
            outside=self._outside,
        )

    def _outside(self) -> KazooZkClient:
        return KazooZkClient(
            self._config.hosts,
            self._config.session_timeout_ms,
            connect_timeout_s=self._config.connection_timeout_ms / 1000,
        )


class _RootedZkClient(KazooZkClient):
    """Makes sure that the chroot exists before it is used."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        *,
        connect_timeout_s: float,
        previous_session: Credentials | None,
        on_fatal: Callable[[BaseException], None],
        chroot: str,
        outside: Callable[[], KazooZkClient],
    ) -> None:
        super().__init__(
            hosts,
            session_timeout_ms,
            connect_timeout_s=connect_timeout_s,
            previous_session=previous_session,
            on_fatal=on_fatal,
        )
        self._chroot = chroot
        self._outside = outside

    async def start(self) -> None:
        """Open the session; the first broker of a cluster creates the chroot in a session of its own."""
        await super().start()
        if self._chroot and await self.exists("/") is None:
            outside = self._outside()
            await outside.start()
            try:
                path = ""
                for name in self._chroot.strip("/").split("/"):
                    path += f"/{name}"
                    await znodes.create_if_absent(outside, path, b"")
            finally:
                await outside.close()


def _nobody_listens(failure: BaseException) -> None:
    return None
