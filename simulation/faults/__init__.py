"""What happens to a world, and when."""
