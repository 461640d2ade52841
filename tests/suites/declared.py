"""What every suite declares: its release, the cluster it wants, and where it is not run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.suites.checkout import Stated, version_of
from tests.suites.shape import Cluster, Shape
from tests.suites.suite import Reasons, Run, SuiteProblem


@dataclass(frozen=True)
class Asked:
    """What a run was asked for."""

    peer: str
    reasons: Reasons = field(default_factory=Reasons)
    only: str = ""
    first: bool = False


@dataclass(frozen=True, kw_only=True)
class Suite(ABC):
    """`version` is the release that is installed and that the reasons are for; `checkout` names its folder
    among the checkouts; `absent` tells why a peer is not met that most suites meet.
    """

    name: str
    title: str
    version: str
    checkout: str
    shape: Shape
    stated: Stated | None = None
    peers: tuple[str, ...] = ("strandline", "kafka")
    absent: Mapping[str, str] = field(default_factory=dict)

    def check(self, checkout: Path, reasons: Reasons) -> None:
        """Refuse a checkout, or reasons, of another release: nothing they say would hold."""
        if not checkout.is_dir():
            raise SuiteProblem(
                f"{checkout} is missing: it should be a checkout of {self.title} {self.version}"
            )
        found = version_of(checkout, self.stated)
        if found.endswith("-dirty"):
            raise SuiteProblem(f"{checkout} has changes; a suite is run as it was released")
        for what, version in ((str(checkout), found), (f"reasons/{self.name}.toml", reasons.version)):
            if version != self.version:
                raise SuiteProblem(
                    f"{what} is of {self.title} {version or '(no version)'}, the suite is declared for "
                    f"{self.version}: check that release out, or bring checkout, reasons and suite together"
                )

    @abstractmethod
    def play(self, checkout: Path, cluster: Cluster, scratch: Path, asked: Asked) -> Run:
        """Run it; a test that was left out is not in the table."""
