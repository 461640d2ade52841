"""Whoever builds an image again gets the same: each layer, to the byte, with names, modes and times."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import pytest
from compose_command import BUILDX, RUN_S, Compose, version_of
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


def classically(engine: docker.DockerClient, base: str, stage: str) -> Image:
    """By the engine's own builder, which `docker-compose` 1.29 asks."""
    image, _ = engine.images.build(
        path=str(ROOT),
        dockerfile=str(DOCKERFILE.relative_to(ROOT)),
        target=stage,
        buildargs={"PYTHON_IMAGE": base},
        nocache=True,
        forcerm=True,
    )
    return image


def by_buildkit(engine: docker.DockerClient, base: str, stage: str) -> Image:
    """By BuildKit, which `docker build` and today's Compose ask."""
    if not version_of(BUILDX):
        pytest.skip("`docker buildx` is not installed")
    given = ("--no-cache", "--load", "--quiet", "--target", stage, "--build-arg", f"PYTHON_IMAGE={base}")
    done = subprocess.run(
        [*BUILDX, "build", *given, "--file", str(DOCKERFILE), str(ROOT)],
        env={**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    return engine.images.get(done.stdout.strip())


@pytest.mark.long
@pytest.mark.parametrize(
    ("build", "stage"),
    [(classically, "broker"), (classically, "spark"), (by_buildkit, "broker")],
)
def test_a_second_build_brings_the_same_layers(
    engine: docker.DockerClient,
    images: dict[str, str],
    spark_wheels: None,
    build: Callable[[docker.DockerClient, str, str], Image],
    stage: str,
) -> None:
    name = images["PYTHON_IMAGE"]
    base = engine.images.get(name)
    with kept(engine, build, name, stage) as first, kept(engine, build, name, stage) as second:
        assert len(layers_of(second)) > len(layers_of(base))
        if layers_of(first) != layers_of(second):
            pytest.fail("\n".join(differences(added(first, base), added(second, base))[:SHOWN_MAX]))


@contextmanager
def kept(
    engine: docker.DockerClient,
    build: Callable[[docker.DockerClient, str, str], Image],
    base: str,
    stage: str,
) -> Iterator[Image]:
    """The image of a stage, made without what earlier builds have left; afterwards it is gone."""
    before = {image.id for image in engine.images.list(all=True)}
    try:
        yield build(engine, base, stage)
    finally:
        for made in engine.images.list(all=True):
            if made.id not in before and not made.tags:
                with suppress(docker.errors.APIError):  # it has gone with one that was made of it
                    engine.images.remove(made.id)
