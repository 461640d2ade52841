"""Which partition of an internal topic keeps a group or a transactional id, as Kafka's clients expect.

Whoever leads that partition coordinates the group or the transactions.
"""

_INT32 = 1 << 32
_INT32_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for place in range(0, len(units), 2):
        result = (31 * result + (units[place] << 8 | units[place + 1])) % _INT32
    return result - _INT32 if result >= _INT32 // 2 else result


def partition_of(key: str, partition_count: int) -> int:
    """The partition of a group or a transactional id: |hash| % count. -2^31 has no absolute value in 32 bits;
    Kafka takes 0.
    """
    number = java_hash(key)
    return 0 if number == _INT32_MIN else abs(number) % partition_count
