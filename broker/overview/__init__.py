"""What one broker adds to the overview of the cluster that any broker's web page shows."""
