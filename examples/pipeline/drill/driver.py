"""The job's driver as a process: `spark-submit` of delays.py, as a user would."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from strandline.local.standalone_spark import HOST, home

JOB = Path(__file__).resolve().parents[1] / "delays.py"
SOURCES = (
    JOB.parents[2] / ".src"
)  # Spark looks for sources by name only in folders: an editable install has none
TOO_SLOW = b"Timed out while waiting for the Python worker to connect back"
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


class Driver:
    """The driver; killed and started again it goes on from the same checkpoints."""

    def __init__(self, directory: Path, master: str, arguments: Sequence[str]) -> None:
        self.directory = directory
        self.log = directory / "driver.log"
        settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        submit = str(home() / "bin" / "spark-submit")
        self._command = [submit, "--master", master, *settings, str(JOB), *arguments]
        self._child: subprocess.Popen[bytes] | None = None
        self._from = 0  # where its log has the beginning of this start

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start it. Its first batch is the proof that it runs."""
        assert not self.alive, "the driver is already running"
        self._from = self.log.stat().st_size if self.log.exists() else 0
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.directory,
                env={
                    **inherited,
                    "SPARK_HOME": str(home()),
                    "SPARK_CONF_DIR": str(self.directory),
                    "SPARK_LOCAL_IP": HOST,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join(filter(None, (str(SOURCES), os.environ.get("PYTHONPATH")))),
                },
            )

    @property
    def is_too_slow(self) -> bool:
        """It has ended by a limit of Spark's own: a Python process must come up within ten seconds."""
        with self.log.open("rb") as log:
            log.seek(self._from)
            return TOO_SLOW in log.read()

    def kill(self) -> None:
        """SIGKILL for its JVM and its Python. Returns when they are gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what is left of it after a while."""
        self._end(signal.SIGTERM)
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> None:
        if self._child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(20)
