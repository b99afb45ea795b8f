"""What is raised for keys and the files that hold them."""

from __future__ import annotations


class KeyFileError(ValueError):
    """A key, or a file or folder of keys, cannot be used; the message says which, why, and what to do.

    It never contains text of the file, which may be a secret.
    """
