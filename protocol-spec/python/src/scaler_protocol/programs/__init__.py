"""What the command-line programs share: the option table, logging and start-up. No other peer needs it."""
