"""Sockets on which mutants of a scheduler serve: ZMTP, without and with CURVE."""
