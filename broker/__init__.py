"""One broker: sockets, handlers, the shells round each replica, groups and their offsets."""
