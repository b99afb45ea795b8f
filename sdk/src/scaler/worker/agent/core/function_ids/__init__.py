"""What an agent knows of the functions that its tasks call. No I/O."""
