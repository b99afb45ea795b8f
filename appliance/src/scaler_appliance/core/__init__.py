"""The scheduler's decisions.

Rules:
- No sockets, no clock, no event loop, no randomness, no threads, no logging: time and peers are arguments, and what has
  to be done is returned as effects. The same inputs always give the same outputs.
- A message comes in as `Scheduler.on_message(now, peer, message, payload)`; after each burst of messages the shell
  calls `Scheduler.tick(now)`, which places tasks and sends the gathered messages. One effect is one batch.
- A peer's fault raises PeerError inside a reaction, and at most ends that peer's session. A broken invariant of our own
  is an AssertionError.
"""
