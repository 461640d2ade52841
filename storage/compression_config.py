"""compression.type and the levels of its codecs, as Kafka 3.9 has them (KIP-390).

Left to others: the other options of logs (config.py), their effect (broker/replicas/recompression.py).
"""

from typing import Literal

from pydantic import BaseModel, field_validator

from ..base.options import option

CompressionType = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]


def check_gzip_level(level: int) -> int:
    """Zlib's levels that compress, or its default."""
    if level == 0:
        raise ValueError("expected 1 to 9, or -1 for gzip's default")
    return level


class CompressionConfig(BaseModel, frozen=True, extra="forbid"):
    """The codec in which batches are kept."""

    compression_type: CompressionType = option(
        "producer",
        kafka="compression.type",
        restart=False,
        help="Codec of stored batches; the leader recompresses batches with another codec. producer "
        "keeps batches as sent, uncompressed decompresses them.",
    )
    compression_gzip_level: int = option(
        -1,
        ge=-1,
        le=9,
        kafka="compression.gzip.level",
        restart=False,
        help="Level of compression.type=gzip, 1 to 9; -1 is its default, 6.",
    )
    compression_lz4_level: int = option(
        9,
        ge=1,
        le=17,
        kafka="compression.lz4.level",
        restart=False,
        help="Level of compression.type=lz4; as in Kafka, 9 is the fast compressor and any other "
        "number a level of the high one, at most 12.",
    )
    compression_zstd_level: int = option(
        3,
        ge=-131072,
        le=22,
        kafka="compression.zstd.level",
        restart=False,
        help="Level of compression.type=zstd.",
    )

    _gzip = field_validator("compression_gzip_level")(check_gzip_level)
