"""What lets programs of earlier generations (Scaler 1.x, and 2.x as `opengris-scaler`) run unmodified.

    table        what maps to what: modules and their names, arguments, and what has no counterpart and why
    modules      imports by earlier names, found by the table
    arguments    arguments by earlier names, accepted by the table
    names        the few things that exist only for such programs
    settings     the second generation's configuration classes, likewise
    installation the warning about another distribution that is imported as `scaler`

Rules:
- Nothing here is imported before a program uses something of an earlier generation, except `arguments`, which the
  classes that users make import.
- The table says it all: `docs/migrating.md` is tested against it.
- An earlier spelling warns once, or not at all; it never fails where the earlier generation did not.
"""
