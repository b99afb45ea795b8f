"""Bytes on the wire: Cap'n Proto messages (`codec`, `messages`, `capnproto`) and ZMTP frames (`zmtp`).

Rules: pure computation. No socket, file, clock or thread; bytes in, values out, and back.
"""
