"""The scheduler's decisions, and nothing else.

Rules:
- No sockets, no clock, no event loop, no randomness, no threads, no logging: time and peers come in as arguments, what
  is to be done goes out as effects. Same inputs, same outputs, always.
- A message comes in as `Scheduler.on_message(now, peer, message, payload)`; after each burst of messages the shell
  calls `Scheduler.tick(now)`, which places tasks and sends what has gathered. One effect is one batch.
- A peer's fault raises PeerError inside a reaction and costs that peer its session at most. A broken invariant of our
  own is an AssertionError.
"""
