"""What the controller decides, as pure functions of its state and one event."""
