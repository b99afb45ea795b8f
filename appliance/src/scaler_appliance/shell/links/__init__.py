"""A peer and its connection, and sessions that go on over another one."""
