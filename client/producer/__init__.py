"""The producer: batches by partition, one sender, idempotence."""
