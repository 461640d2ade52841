"""Without a Docker engine the drills are skipped with the reason."""

import gc
import socket
from pathlib import Path

import pytest
from docker_engine import refusal


@pytest.mark.filterwarnings("error")
def test_a_socket_that_nobody_listens_on_is_told_and_not_left_open(tmp_path: Path) -> None:
    left = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(left))
        server.listen()
        assert refusal(f"unix://{left}") == ""
    assert "refused" in refusal(f"unix://{left}")
    assert "No such file" in refusal(f"unix://{tmp_path}/gone.sock")
    gc.collect()


def test_an_engine_behind_a_port_is_asked_there() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        server.listen()
        assert refusal(f"tcp://127.0.0.1:{port}") == ""
    assert "refused" in refusal(f"tcp://127.0.0.1:{port}")
