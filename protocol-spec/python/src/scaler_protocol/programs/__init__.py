"""Shared code of the command-line programs: the option table, logging and start-up. Peers do not need it."""
