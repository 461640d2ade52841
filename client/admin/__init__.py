"""The admin client."""
