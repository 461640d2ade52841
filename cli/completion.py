"""Shell completion: the script for each shell, and names of topics, groups, brokers and directories.

Typer answers the shells; the scripts only ask it. Names come from the cluster if it answers at once, else
there are none: nobody who presses a key waits for a broker, or wants an error there.
"""

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from ..client.config import ConfigError
from ..client.sync import Admin
from ..protocol.errors import ApiError
from .console import DEFAULT_BOOTSTRAP, Failure, WrongUsage, out
from .reach import own_cluster, reached

ANSWER_MS = 700
"""The longest that a cluster may take for names to complete."""

BASH = r"""_strandline_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        [[ -n $line ]] && COMPREPLY+=("$line")
    done < <(_STRANDLINE_COMPLETE=complete_bash COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
        "$1" 2>/dev/null)
}
complete -o default -F _strandline_complete strandline"""

ZSH = r"""#compdef strandline
_strandline_complete() {
    eval "$(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _STRANDLINE_COMPLETE=complete_zsh \
        strandline 2>/dev/null)"
}
compdef _strandline_complete strandline"""

FISH = (
    "complete --command strandline --no-files "
    '--arguments "(env _STRANDLINE_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args '
    '_TYPER_COMPLETE_ARGS=(commandline -cp) strandline 2>/dev/null)" '
    '--condition "env _STRANDLINE_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=is-args '
    '_TYPER_COMPLETE_ARGS=(commandline -cp) strandline 2>/dev/null"'
)


class Shell(StrEnum):
    """The shells that can complete."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


SCRIPTS = {Shell.bash: BASH, Shell.zsh: ZSH, Shell.fish: FISH}


def completion(shell: Annotated[Shell, typer.Argument(help="the shell to complete in")]) -> None:
    """Print the script that lets a shell complete commands, options, topics and groups.

    bash: source <(strandline completion bash)     zsh: source <(strandline completion zsh)
    fish: strandline completion fish | source
    """
    out.print(SCRIPTS[shell], markup=False, soft_wrap=True)


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics of the cluster that the command line so far is about."""
    return _asked(context, lambda admin: admin.list_topics(internal=incomplete.startswith("_")))


def partition_names(context: typer.Context, incomplete: str) -> list[str]:
    """The partitions, as topic-partition, of the cluster that the command line so far is about."""

    def ask(admin: Admin) -> list[str]:
        topics = [one for one in admin.list_topics(internal=True) if one.startswith(incomplete)]
        if not topics:  # a topic's name stands there already, and a part of the number
            topics = [incomplete.rpartition("-")[0]]
        described = admin.describe_topics(topics) if topics != [""] else []
        return [f"{topic.name}-{one.partition}" for topic in described for one in topic.partitions]

    return _asked(context, ask)


def group_names(context: typer.Context) -> list[str]:
    """The consumer groups of the cluster that the command line so far is about."""
    return _asked(context, lambda admin: [one.group for one in admin.list_groups()])


def log_dir_names(context: typer.Context) -> list[str]:
    """The log directories of the broker that the command line so far is about, or of all brokers."""
    broker = context.params.get("broker")

    def ask(admin: Admin) -> list[str]:
        brokers = [one.node_id for one in admin.describe_cluster().brokers] if broker is None else [broker]
        described = admin.describe_known_log_dirs(brokers)
        return sorted({one.path for dirs in described.values() for one in dirs})

    return _asked(context, ask)


def member_names() -> list[str]:
    """The processes of the cluster that `up` started."""
    own = own_cluster()
    return [] if own is None else list(own.processes)


def _asked(context: typer.Context, ask: Callable[[Admin], list[str]]) -> list[str]:
    given: Any = context.params.get("bootstrap") or os.environ.get("BOOTSTRAP_SERVERS") or DEFAULT_BOOTSTRAP
    try:
        with Admin(
            reached(str(given)), default_api_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS
        ) as admin:
            return ask(admin)
    except (OSError, ApiError, ConfigError, Failure, WrongUsage):
        return []
