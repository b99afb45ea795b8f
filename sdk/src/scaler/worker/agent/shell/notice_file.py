"""The file by which another program gives notice: `--drain-file`.

Rule: in a folder that all users can write to, such as /tmp, a file counts that this user or root has made.
"""

from __future__ import annotations

import os
import stat

from scaler_protocol.host import system


def is_there(path: str) -> bool:
    """Whether it gives notice.

    Raises PermissionError, with what is wrong, if there is a file that another user may have put there.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if found.st_uid in (system.user_id(), 0):
        return True
    folder = os.path.realpath(os.path.dirname(path) or ".")
    if os.stat(folder).st_mode & stat.S_IWOTH:
        raise PermissionError(
            f"the file {path} is no notice (drain_file): it belongs to the user with the id {found.st_uid}, and all"
            f" users can write to {folder}; name a file in another folder"
        )
    return True
