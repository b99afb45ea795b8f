"""What the cases of each role work with: a module a role, with a class RoleBench."""
