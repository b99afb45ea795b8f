"""A bench for each role: the implementation under test, and the peers that the suite plays around it.

Rules:
- `implementation` starts and stops the implementation; `bench` is what the benches of all roles share.
- The bench of a role is the class `RoleBench` of the module with its name.
"""
