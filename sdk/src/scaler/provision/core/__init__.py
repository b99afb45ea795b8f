"""The policy of a provisioner. No I/O, no clock."""
