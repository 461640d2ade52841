"""The PySpark data source `strandline`: committed records up to the high watermark."""

from .source import StrandlineDataSource, register

__all__ = ["StrandlineDataSource", "register"]
