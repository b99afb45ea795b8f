"""Cases for clients. Rule: a module is an area; see the package above for what a case is."""
