"""How tests start Spark: as users do, but sooner.

A Spark from pip has its own modules twice: in site-packages, compiled, and in python/lib/pyspark.zip, whose
sources each of its Python processes would compile when it starts; there are a handful of them in every read
and every write. So SPARK_HOME is a folder that has all but that archive. A JVM that lives for minutes gains
nothing from its second compiler and its parallel collector, and no table here is worth 200 partitions.
Left to others: sessions of the benchmarks, which are as users have them (bench/spark.py).
"""

from importlib.util import find_spec
from pathlib import Path

NEEDED = ("bin", "jars")

QUICK = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
    "spark.sql.shuffle.partitions": "2",
}


def spark_home(place: Path) -> str:
    """A new SPARK_HOME in `place`, of the pyspark that would be imported; sessions in it are `QUICK`."""
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None, "pyspark is not installed: make setup"
    place.mkdir(parents=True, exist_ok=True)
    for name in NEEDED:
        (place / name).symlink_to(Path(found.origin).parent / name)
    (place / "conf").mkdir()
    lines = [f"{name} {value}\n" for name, value in QUICK.items()]
    (place / "conf" / "spark-defaults.conf").write_text("".join(lines))
    return str(place)
