"""The synchronous client: runs its tasks in the calling thread, with everything else as in a cluster."""
