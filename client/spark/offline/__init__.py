"""Option `logDirs`: a batch read of closed log directories, with no broker running."""
