"""Cases for schedulers. Rule: each module is an area; see the package `cases` for what a case is."""
