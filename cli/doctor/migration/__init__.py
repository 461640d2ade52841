"""`strandline doctor --migration`: what of a Kafka cluster would not work after its move to Strandline."""
