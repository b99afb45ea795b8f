"""Files that only their user can read: how they are read, and how they are written.

    read_private ──▶ open, without waiting ─▶ fstat: owner, kind, mode ─▶ text
    read_trusted ──▶ the same, for a text that others may read, but not write
    write_private ─▶ a new file, 0600 ─▶ fsync ─▶ link or rename to its name

Rules:
- What is checked is the open file, so that it cannot be exchanged in between. A pipe or a device is not waited for.
- Nor can others put a file in its place, now or after it was written: the folders above it, up to the user's home or
  the root, belong to this user or to root, and others cannot write to them. A folder with the sticky bit, such as /tmp,
  is safe; so is one that only root's group can write, or the group that has this user's name and no other member.
- Symbolic links are followed when a file is read: a secret mounted by Kubernetes is one. When a file is written they
  are not: a link at its name is an error, or is replaced itself.
- A file has its whole content from the moment it has its name, and mode 0600 from the moment it exists. Of several
  programs that create one file, one wins and the others find its file: this uses link(), which is atomic on network
  file systems, too, and no lock.
"""

from __future__ import annotations

import contextlib
import os
import stat

from scaler_protocol.host import system
from scaler_protocol.host.peer_credentials import user_of_others
from scaler_protocol.keys.errors import KeyFileError

MAXIMUM_KEY_FILE_BYTES = 1 << 16
_EXISTING = os.O_RDONLY | system.O_BINARY | system.O_NONBLOCK | system.O_CLOEXEC | system.O_NOCTTY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_BINARY | system.O_NOFOLLOW | system.O_CLOEXEC


def read_private(path: str, maximum_bytes: int = MAXIMUM_KEY_FILE_BYTES) -> str:
    """The text of a file that no other user can read.

    It must be a regular file of this user, with mode 0600 or less; or one of root that at most a group can read as
    well, as Kubernetes mounts it for a user with an fsGroup.

    Raises KeyFileError, and FileNotFoundError if it does not exist.
    """
    return _read(path, maximum_bytes, 0o077, 0o037)


def read_trusted(path: str, maximum_bytes: int) -> str:
    """The text of a file that no other user but root can write.

    Raises KeyFileError, and FileNotFoundError if it does not exist.
    """
    return _read(path, maximum_bytes, 0o022, 0o022)


def _read(path: str, maximum_bytes: int, forbidden: int, forbidden_of_root: int) -> str:
    """The text of a file without these bits in its mode."""
    try:
        _check_folders(path, os.path.dirname(os.path.realpath(path)), "use")
        descriptor = os.open(path, _EXISTING)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        _check(path, found, forbidden_of_root if found.st_uid == 0 else forbidden)
        content = b""
        while len(content) <= maximum_bytes and (data := os.read(descriptor, maximum_bytes + 1 - len(content))):
            content += data
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(content) > maximum_bytes:
        raise KeyFileError(f"cannot use {path}: it has more than {maximum_bytes} bytes; is it a file of keys?")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise KeyFileError(f"cannot use {path}: it is not UTF-8 text; is it a file of keys?") from None


def _check(path: str, found: os.stat_result, forbidden: int) -> None:
    mode = stat.S_IMODE(found.st_mode) if system.HAS_USERS else 0
    if not stat.S_ISREG(found.st_mode):
        raise KeyFileError(f"cannot use {path}: it is not a regular file")
    if found.st_uid not in (system.user_id(), 0):
        raise KeyFileError(
            f"cannot use {path}: it belongs to the user with the id {found.st_uid}, who can change it and read it;"
            f" make a file of your own: install -m 600 {path} NEW_FILE"
        )
    if mode & forbidden:
        raise KeyFileError(f"cannot use {path}: other users can access it (mode {mode:04o}); run: chmod 600 {path}")


def _check_folders(path: str, folder: str, verb: str) -> None:
    """Raises KeyFileError if another user could replace a file, or a folder above it.

    Parameters:
        folder: in which it is, without symbolic links.
        verb: what is to be done with the file.
    """
    if not system.HAS_USERS:
        return
    home = os.path.realpath(os.path.expanduser("~"))
    while True:
        found = os.stat(folder)
        if found.st_uid not in (system.user_id(), 0) and found.st_uid != user_of_others():
            raise KeyFileError(
                f"cannot {verb} {path}: the folder {folder} belongs to the user with the id {found.st_uid}, who can"
                f" replace what is in it; {'move the file to' if verb == 'use' else 'choose'} a folder of your own"
            )
        if not found.st_mode & stat.S_ISVTX:
            mended = "o-w" if found.st_mode & 0o002 else ""
            if found.st_mode & 0o020 and not _is_own_group(found.st_gid):
                mended = "go-w" if mended else "g-w"
            if mended:
                mode = stat.S_IMODE(found.st_mode)
                raise KeyFileError(
                    f"cannot {verb} {path}: other users can replace what is in the folder {folder} (mode {mode:04o});"
                    f" run: chmod {mended} {folder}"
                )
        if folder in (home, os.path.dirname(folder)):
            return
        folder = os.path.dirname(folder)


def _is_own_group(group: int) -> bool:
    """Whether a group is root's, or this user's private one: it has the user's name, and no other member."""
    if group == 0:
        return True
    import grp  # not at the top: few folders can be written by a group
    import pwd

    try:
        name, found = pwd.getpwuid(system.user_id()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}


def write_private(path: str, text: str, is_replaced: bool = False) -> None:
    """Make a file of mode 0600 with this text, at once.

    Parameters:
        is_replaced: a file of that name is replaced, rather than an error.

    Raises FileExistsError, and KeyFileError if it cannot be written.
    """
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".new-{name}-{os.getpid()}-{os.urandom(8).hex()}")
    try:
        _check_folders(path, os.path.realpath(folder), "write")
        descriptor = os.open(unfinished, _NEW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if system.HAS_USERS:
                    os.fchmod(descriptor, 0o600)  # also if the umask leaves less
                file.write(text.encode())
                file.flush()
                os.fsync(descriptor)
            if is_replaced:
                os.rename(unfinished, path)
            else:
                os.link(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)
        _sync_folder(folder or ".")
    except FileExistsError:
        raise
    except OSError as error:
        raise KeyFileError(f"cannot write {path}: {error.strerror}") from None


def _sync_folder(folder: str) -> None:
    """So that the name, too, is still there after a power failure; some network file systems cannot."""
    if not system.HAS_USERS:
        return  # Windows opens no folders
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | system.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
