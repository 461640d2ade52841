"""docker-compose.yml by a command of its users: docker-compose 1.29, or today's `docker compose`."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = "strandline-tests"  # not named after the clone: what a killed run left is found by the next one
RUN_S = 900.0
OLD, TODAY = ("docker-compose",), ("docker", "compose")
BUILDX = ("docker", "buildx")


def version_of(command: Sequence[str]) -> str:
    """What `command version` says, or nothing where there is no such command."""
    if shutil.which(command[0]) is None:
        return ""
    short = () if command == BUILDX else ("--short",)
    asked = subprocess.run([*command, "version", *short], capture_output=True, text=True, timeout=60)
    return asked.stdout.strip().removeprefix("v") if asked.returncode == 0 else ""


class Compose:
    """One command, and what is set for it: `images` only where the public ones cannot be had."""

    def __init__(self, command: Sequence[str], images: Mapping[str, str]) -> None:
        self.command = command
        self.environment = {**os.environ, **images, "COMPOSE_PROJECT_NAME": PROJECT}

    def run(self, *arguments: str, given: str = "") -> str:
        """Run it; what it prints. Fails the test if it fails."""
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=ROOT,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        said = f"{' '.join((*self.command, *arguments))}:\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        return done.stdout
