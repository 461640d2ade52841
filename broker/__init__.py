"""One broker: sockets, request handlers, replicas, consumer groups and their offsets."""
