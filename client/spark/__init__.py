"""The PySpark data source `strandline`: committed records up to the high watermark."""

from ...base.extras import require

require("pyspark", "spark", "the data source of Spark")
require("pyarrow", "spark", "the data source of Spark")

from .source import StrandlineDataSource, register  # noqa: E402  (it imports both)

__all__ = ["StrandlineDataSource", "register"]
