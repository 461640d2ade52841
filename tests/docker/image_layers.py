"""What the layers of an image hold, so that two images can be told apart by their files."""

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from docker.models.images import Image


class Entry(NamedTuple):
    """One file, directory or link, as its layer has it."""

    kind: bytes
    mode: int
    owner: tuple[int, int]
    time: float
    link: str
    content: str


Entries = dict[tuple[int, str], Entry]  # by the number of the layer, and the name


def layers_of(image: Image) -> list[str]:
    """The layers' own names: a hash over the whole archive of each, with names, modes and times."""
    layers: list[str] = image.attrs["RootFS"]["Layers"]
    return layers


def added(image: Image, base: Image) -> Entries:
    """What is in the layers that the image has and its base has not."""
    skipped = len(layers_of(base))
    assert layers_of(image)[:skipped] == layers_of(base), "it is an image of this base"
    return dict(_entries(image, skipped))


def differences(one: Entries, other: Entries) -> list[str]:
    """What differs, a line for each entry."""
    return [
        f"layer {layer}: {name}: {one.get((layer, name))} and {other.get((layer, name))}"
        for layer, name in sorted(one.keys() | other.keys())
        if one.get((layer, name)) != other.get((layer, name))
    ]


def _entries(image: Image, skipped: int) -> Iterator[tuple[tuple[int, str], Entry]]:
    with tempfile.TemporaryFile() as saved:
        for part in image.save(chunk_size=1 << 20):
            saved.write(part)
        saved.seek(0)
        with tarfile.open(fileobj=saved) as whole:
            manifest = whole.extractfile("manifest.json")
            assert manifest is not None
            (told,) = json.load(manifest)
            for number, place in list(enumerate(told["Layers"]))[skipped:]:
                with tarfile.open(fileobj=whole.extractfile(place)) as layer:
                    for member in layer:
                        yield (number, member.name), _entry(layer, member)


def _entry(layer: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    opened = layer.extractfile(member) if member.isreg() else None
    content = "" if opened is None else hashlib.file_digest(opened, "sha256").hexdigest()
    owner = (member.uid, member.gid)
    return Entry(member.type, member.mode, owner, member.mtime, member.linkname, content)
