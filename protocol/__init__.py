"""What is said on the wire: messages, record batches, errors. Pure: bytes in, values out."""
