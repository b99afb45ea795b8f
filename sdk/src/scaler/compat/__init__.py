"""Runs programs of earlier generations (Scaler 1.x, and 2.x as `opengris-scaler`) unmodified.

    table        the mapping: modules and their names, arguments, and what has no counterpart and why
    modules      imports by earlier names, from the table
    arguments    arguments by earlier names, from the table
    names        the few things that exist only for such programs
    settings     the second generation's configuration classes
    installation the check for another distribution that is imported as `scaler`

Rules:
- Nothing here is imported until a program uses a name of an earlier generation, except `arguments`, which the public
  classes import.
- The table is complete: a test compares `docs/migrating/scaler.md` with it.
- An earlier spelling warns once, or not at all; it never fails where the earlier generation did not.
"""
