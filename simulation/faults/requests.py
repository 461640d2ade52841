"""What administrators ask for, and members of a group do, while other things go wrong.

Left to others: the requests themselves, and what becomes of them (`clients/`).
"""

from __future__ import annotations

from ..clients.copiers import Copiers
from ..clients.errands import Errands
from ..clients.members import Members
from ..clients.moving import Mover
from ..clients.readers import Readers


class Requests:
    """Each kind is a method, as with faults."""

    def __init__(
        self,
        mover: Mover,
        errands: Errands,
        readers: Readers | None,
        copiers: Copiers | None,
        members: Members | None,
    ) -> None:
        self.mover, self.errands, self.readers = mover, errands, readers
        self.copiers, self.members = copiers, members

    async def move(self) -> None:
        """An administrator moves a partition to other brokers, or cancels a move."""
        self.mover.move()

    async def make_topic(self) -> None:
        """A topic is created."""
        self.errands.make()

    async def grow_topic(self) -> None:
        """A topic gets one more partition."""
        self.errands.grow()

    async def delete_topic(self) -> None:
        """A topic is deleted."""
        self.errands.delete()

    async def elect(self) -> None:
        """An administrator asks for preferred leaders."""
        self.errands.elect()

    async def elect_uncleanly(self) -> None:
        """An administrator asks for unclean elections, in topics other than the one that is judged."""
        self.errands.elect_uncleanly()

    async def kill_copier(self) -> None:
        """A process with a transaction is killed; another one takes its place."""
        if self.copiers is not None:
            self.copiers.kill()

    async def replace_copier(self) -> None:
        """A process with a transaction stands still for a while; another one takes its place at once."""
        if self.copiers is not None:
            self.copiers.replace()

    async def kill_member(self) -> None:
        """A member of the group for which the broker assigns is killed; another one joins at once."""
        if self.members is not None:
            self.members.kill()

    async def replace_member(self) -> None:
        """A member of that group stands still for a while; another one joins at once."""
        if self.members is not None:
            self.members.replace()

    async def leave_member(self) -> None:
        """A member leaves that group; another one joins."""
        if self.members is not None:
            self.members.leave()

    async def churn(self) -> None:
        """A member leaves the group, and another joins it."""
        if self.readers is not None:
            self.readers.churn()
