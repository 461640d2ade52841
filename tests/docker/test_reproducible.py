"""Whoever builds an image again gets the same: each layer, to the byte, with names, modes and times."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import pytest
from compose_command import Compose
from docker.models.images import Image
from image_layers import added, differences, layers_of

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
SHOWN_MAX = 50


def test_nothing_in_the_image_bears_the_time_of_its_build(
    engine: docker.DockerClient, images: dict[str, str], stack: Compose
) -> None:
    """Not even what is removed: that would be noted with its time."""
    (time,) = set(re.findall(r"ARG SOURCE_DATE_EPOCH=(\d+)", DOCKERFILE.read_text()))
    base = engine.images.get(images["PYTHON_IMAGE"])
    entries = added(engine.images.get("strandline-broker"), base)
    assert any(name == "opt/strandline/venv/bin/strandline" for _, name in entries)
    others = {name: entry.time for (_, name), entry in entries.items() if entry.time != int(time)}
    assert not others, dict(list(others.items())[:SHOWN_MAX])


@pytest.mark.long
@pytest.mark.parametrize("stage", ["broker", "spark"])
def test_a_second_build_brings_the_same_layers(
    engine: docker.DockerClient, images: dict[str, str], spark_wheels: None, stage: str
) -> None:
    base = engine.images.get(images["PYTHON_IMAGE"])
    with built(engine, base, stage) as first, built(engine, base, stage) as second:
        assert len(layers_of(second)) > len(layers_of(base))
        if layers_of(first) != layers_of(second):
            pytest.fail("\n".join(differences(added(first, base), added(second, base))[:SHOWN_MAX]))


@contextmanager
def built(engine: docker.DockerClient, base: Image, stage: str) -> Iterator[Image]:
    """The image of a stage, made without what earlier builds have left; afterwards it is gone."""
    before = {image.id for image in engine.images.list(all=True)}
    try:
        image, _ = engine.images.build(
            path=str(ROOT),
            dockerfile=str(DOCKERFILE.relative_to(ROOT)),
            target=stage,
            buildargs={"PYTHON_IMAGE": base.id},
            nocache=True,
            forcerm=True,
        )
        yield image
    finally:
        for made in engine.images.list(all=True):
            if made.id not in before and not made.tags:
                with suppress(docker.errors.APIError):  # it has gone with one that was made of it
                    engine.images.remove(made.id)
