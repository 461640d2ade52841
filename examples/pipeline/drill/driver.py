"""The job's driver as a process: `spark-submit` of delays.py, as a user would."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from strandline.local.standalone_spark import HOST, SparkProcess

JOB = Path(__file__).resolve().parents[1] / "delays.py"
SOURCES = (
    JOB.parents[2] / ".src"
)  # Spark looks for sources by name only in folders: an editable install has none
SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
TOO_SLOW = b"Timed out while waiting for the Python worker to connect back"
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


class Driver(SparkProcess):
    """The driver; killed and started again it goes on from the same checkpoints."""

    def __init__(self, directory: Path, master: str, arguments: Sequence[str]) -> None:
        settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        python_path = os.pathsep.join(filter(None, (str(SOURCES), os.environ.get("PYTHONPATH"))))
        super().__init__(
            "driver",
            directory,
            [SPARK_SUBMIT, "--master", master, *settings, str(JOB), *arguments],
            {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path},
        )
        self._from = 0  # where its log has the beginning of this start

    def start(self) -> None:
        """Start it. Its first batch is the proof that it runs."""
        self._from = self.log.stat().st_size if self.log.exists() else 0
        super().start()

    @property
    def is_too_slow(self) -> bool:
        """It has ended by a limit of Spark's own: a Python process must come up within ten seconds."""
        with self.log.open("rb") as log:
            log.seek(self._from)
            return TOO_SLOW in log.read()
