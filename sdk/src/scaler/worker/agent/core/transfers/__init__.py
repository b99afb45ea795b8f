"""Objects that workers fetch from one another: the part of the fetcher, and that of the holder. No I/O."""
