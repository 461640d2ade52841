"""A disk on which every change of a name that no sync has made sure may be lost, each for itself.

What was written into files may stay all the same, whichever came later. A file system with an ordered journal
is kinder (`SimDisk`); the rules of storage must not need its kindness.
"""

import posixpath
from random import Random

from strandline.simulation.environment.disk import SimDisk


class ForgetfulNames(SimDisk):
    """Knows for each folder which names are on the medium, and what they name."""

    def __init__(self) -> None:
        super().__init__()
        self._sure: dict[str, object] = {}

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        kept = {name: file for name, file in self._sure.items() if posixpath.dirname(name) != path}
        self._sure = kept | {
            name: file for name, file in self.files.items() if posixpath.dirname(name) == path
        }

    def lose_names(self, random: Random) -> list[str]:
        """The power fails: what was written stays, of the names some are as they were. Returns those."""
        changed = [
            name
            for name in sorted({*self._sure, *self.files})
            if self._sure.get(name) is not self.files.get(name) and posixpath.dirname(name) in self.folders
        ]
        lost = [name for name in changed if random.random() < 0.5]
        for name in lost:
            self.files.pop(name, None)
            if name in self._sure:
                self.files[name] = self._sure[name]  # type: ignore[assignment]
        for content in self.files.values():
            content.synced = len(content.data)
        self._journal.clear()
        return lost
