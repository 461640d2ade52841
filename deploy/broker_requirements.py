"""Print what a broker needs to run: the project's requirements without those of Spark and the fast reader."""

import re
import sys
import tomllib
from pathlib import Path

NOT_IN_BROKERS = {"pyspark", "pyarrow", "numpy"}
"""Spark and columnar decoding run beside the brokers, not in them; left out, the image is 400 MB smaller."""

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
for requirement in project["dependencies"]:
    if re.split(r"[^\w.-]", requirement, maxsplit=1)[0] not in NOT_IN_BROKERS:
        sys.stdout.write(f"{requirement}\n")
