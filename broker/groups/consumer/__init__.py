"""Groups whose assignments the broker computes, by Kafka's new consumer protocol (KIP-848)."""
