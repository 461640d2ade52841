"""Requests that brokers send to each other and to the controller: orders, ISR changes, blocks of ids."""
