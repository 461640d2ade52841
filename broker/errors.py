"""Errors that stop a broker or keep it from starting: one clear sentence with the remedy, no traceback."""


class StartFailed(Exception):
    """The environment does not let the broker start (port, lock, disk, ZooKeeper): exit status 1."""


class BrokenInvariant(AssertionError):
    """An invariant was broken, and the broker has stopped itself; `__cause__` is the failure."""


class StorageLost(Exception):
    """No log directory works any more: exit status 1."""


class BrokerConfigError(Exception):
    """The configuration is invalid: exit status 2. One sentence for each mistake found."""

    def __init__(self, *sentences: str) -> None:
        assert sentences, "an error needs a message"
        self.sentences = sentences
        super().__init__("\n".join(sentences))
