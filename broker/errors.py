"""Why a broker does not start, or ends: one clear sentence with the remedy, never a traceback."""


class StartFailed(Exception):
    """The environment does not let the broker start (port, lock, disk, ZooKeeper): exit status 1."""


class BrokenInvariant(AssertionError):
    """The broker has met what cannot be true and has ended itself; its cause is what was met."""


class StorageLost(Exception):
    """No log directory works any more: exit status 1."""


class BrokerConfigError(Exception):
    """What the broker was told cannot be: exit status 2. One sentence for each mistake found."""

    def __init__(self, *sentences: str) -> None:
        assert sentences, "an error says what is wrong"
        self.sentences = sentences
        super().__init__("\n".join(sentences))
