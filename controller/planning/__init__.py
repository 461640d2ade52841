"""The controller's decisions, as pure functions of its state and one event."""
