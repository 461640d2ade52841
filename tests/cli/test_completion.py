"""Shell completion: commands, options, topics and groups; in real shells where they are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.local.ports import free_ports
from tests.cli.conftest import Shell


def completed(shell: Shell, line: str) -> list[str]:
    """What the shell is told that `line` may go on with."""
    words = line.split(" ")
    asking = {"_STRANDLINE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return Shell(shell.directory, shell.commands, shell.bootstrap, more=asking)().out.split()


def test_names_of_commands_and_options(alone: Shell) -> None:
    assert completed(alone, "strandline pa") == ["pause"]
    assert {"start", "stop", "status"} <= set(completed(alone, "strandline st"))
    assert "delete-records" in completed(alone, "strandline topics del")
    assert "--template" in completed(alone, "strandline consume t --te")
    assert completed(alone, "strandline completion fi") == ["fish"]
    assert completed(alone, "strandline verify fail") == ["failover"]


def test_names_from_the_cluster(strandline: Shell, topic: str) -> None:
    group = f"readers-of-{topic}"
    strandline("groups", "reset-offsets", group, topic, "--to-latest", "--execute")
    for line in ("consume", "produce", "topics describe", "topics delete", f"groups reset-offsets {group}"):
        assert topic in completed(strandline, f"strandline {line} topic-"), line
    assert completed(strandline, f"strandline groups describe readers-of-{topic[:9]}") != []
    assert group in completed(strandline, "strandline consume t --group readers")
    for line in (
        "configs describe --topic",
        "elect-leaders --topic",
        f"groups reset-offsets {group} --topic",
    ):
        assert topic in completed(strandline, f"strandline {line} topic-"), line
    for line in ("why leader", "replay", "lost"):
        assert completed(strandline, f"strandline {line} {topic}") == [f"{topic}-0"], line
        assert completed(strandline, f"strandline {line} {topic}-") == [f"{topic}-0"], line
        assert completed(strandline, f"strandline {line} no-such-topic-") == [], line
    named = Shell(strandline.directory, strandline.commands)
    assert topic in completed(named, f"strandline consume -b {strandline.bootstrap} topic-")


def test_without_a_cluster_there_are_no_names_and_no_errors(alone: Shell) -> None:
    alone.bootstrap = f"127.0.0.1:{free_ports(1)[0]}"
    assert completed(alone, "strandline topics describe x") == []
    alone.bootstrap = "nonsense"
    assert completed(alone, "strandline topics describe x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_what_their_shell_can_read(alone: Shell, shell: str) -> None:
    script = alone("completion", shell).out
    assert "_STRANDLINE_COMPLETE=complete_" + shell in script
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([found, "-n"], input=script, text=True, check=True)


ASKS = {
    "bash": """{script}
COMP_WORDS=(strandline pau) COMP_CWORD=1
_strandline_complete strandline
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """compdef() {{ }}
_arguments() {{ print -r -- "$*" }}
{script}
words=(strandline pau) CURRENT=2
_strandline_complete
""",
    "fish": """{script}
complete -C 'strandline pau'
""",
}
"""What a person's key does, without a terminal; zsh's own `_arguments` needs one."""


@pytest.mark.parametrize("shell", ASKS)
def test_shells_complete(alone: Shell, tmp_path: Path, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "strandline"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m strandline.cli.main "$@"\n')
    command.chmod(0o755)
    asks = ASKS[shell].format(script=alone("completion", shell).out)
    whole = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run([found, "-c", asks], env=whole, capture_output=True, text=True, check=True)
    assert "pause" in done.stdout and "start" not in done.stdout, done.stderr
