"""Takes from a Python process what another system does not have: `macos` or `windows`, as SCALER_TEST_PLATFORM says.

A folder with this file on PYTHONPATH makes Python load it first. It shows that nothing that is missing elsewhere is
used; it cannot show that what is there behaves as it does elsewhere. That is for the machines of the workflow.

Rules:
- What is missing is missing as it is there: an attribute or a module that does not exist, a path that cannot be opened.
- What the system itself has in its place is there: a kqueue, which the standard library's own selector then uses, too.
- The standard library's parts for that system are chosen before any of them is imported.
"""

# ruff: noqa: SIM905 - lists of names
from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import select
import sys
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

PLATFORM = os.environ.get("SCALER_TEST_PLATFORM", "")
if PLATFORM:  # how this Python was built is in a file that is named after this system
    multiarch = getattr(sys.implementation, "_multiarch", "")
    os.environ["_PYTHON_SYSCONFIGDATA_NAME"] = f"_sysconfigdata_{sys.abiflags}_{sys.platform}_{multiarch}"
MISSING_PATHS = ("/proc", "/dev/shm", "/sys")

_EPOLL_NAMES = [name for name in dir(select) if name.startswith(("epoll", "EPOLL"))]
_POLL_NAMES = [name for name in dir(select) if name.startswith(("poll", "POLL"))]
_LINUX_OS = """memfd_create sched_getaffinity sched_setaffinity pidfd_open eventfd splice copy_file_range
    posix_fallocate posix_fadvise setns unshare O_PATH O_TMPFILE pipe2""".split()
_LINUX_SOCKET = "SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK TCP_KEEPIDLE TCP_USER_TIMEOUT SCM_CREDENTIALS".split()
_LINUX_SIGNAL = "sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGPWR SIGSTKFLT SIGPOLL".split()
_POSIX_OS = """fork forkpty register_at_fork geteuid getuid getgid getegid getgroups getpgid getpgrp setpgid
    setsid killpg
    fchmod fchown chown lchown mkfifo mknod nice openpty statvfs fstatvfs sysconf uname wait wait3 wait4 waitid WNOHANG
    WIFSIGNALED WTERMSIG WEXITSTATUS posix_spawn pread pwrite preadv pwritev readv writev sendfile O_CLOEXEC O_NOFOLLOW
    O_NONBLOCK O_DIRECTORY O_NOCTTY O_SYNC O_DSYNC set_blocking get_blocking sched_yield getpriority ctermid ttyname
    tcgetpgrp lockf""".split()
_POSIX_SOCKET = """AF_UNIX sendmsg send_fds recv_fds CMSG_LEN CMSG_SPACE MSG_DONTWAIT MSG_NOSIGNAL
    if_nameindex""".split()
_POSIX_SIGNAL = """SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGALRM SIGQUIT SIGSTOP SIGCONT SIGPIPE pthread_sigmask
    pthread_kill setitimer alarm pause siginterrupt SIG_BLOCK SIG_UNBLOCK SIG_SETMASK sigwait sigpending""".split()
_POSIX_MMAP = "MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS PROT_READ PROT_WRITE MADV_DONTNEED".split()

NOT_ON_MACOS = {
    "select": _EPOLL_NAMES,
    "os": _LINUX_OS,
    "socket": _LINUX_SOCKET,
    "signal": _LINUX_SIGNAL,
    "resource": ["prlimit", "RLIMIT_OFILE"],
}
NOT_ON_WINDOWS = {
    "select": [*_EPOLL_NAMES, *_POLL_NAMES],
    "os": [*_LINUX_OS, *_POSIX_OS],
    "socket": [*_LINUX_SOCKET, *_POSIX_SOCKET],
    "signal": [*_LINUX_SIGNAL, *_POSIX_SIGNAL],
    "mmap": _POSIX_MMAP,
}
MODULES_NOT_ON_WINDOWS = "fcntl resource pwd grp termios tty pty curses readline syslog".split()


class Kevent(SimpleNamespace):
    """`select.kevent`."""

    def __init__(self, ident: Any, filter: int = -1, flags: int = 1) -> None:  # noqa: A002 - as it is there
        descriptor = ident if isinstance(ident, int) else ident.fileno()
        super().__init__(ident=descriptor, filter=filter, flags=flags, fflags=0, data=0, udata=0)


READ, WRITE, ADD, DELETE, EOF = -1, -2, 1, 2, 0x8000
_epoll, _EPOLLIN, _EPOLLOUT, _EPOLLERR, _EPOLLHUP = getattr(select, "epoll", None), 1, 4, 8, 16


class Kqueue:
    """`select.kqueue`, as far as sockets and pipes need it: level-triggered reading and writing."""

    def __init__(self) -> None:
        assert _epoll is not None
        self._epoll = _epoll()
        self._filters: Dict[int, int] = {}

    def fileno(self) -> int:
        return int(self._epoll.fileno())

    @property
    def closed(self) -> bool:
        return bool(self._epoll.closed)

    def control(
        self, changes: Optional[List[Kevent]], max_events: int, timeout: Optional[float] = None
    ) -> List[Kevent]:
        for change in changes or ():
            bit = _EPOLLIN if change.filter == READ else _EPOLLOUT
            before = self._filters.get(change.ident, 0)
            if change.flags & DELETE and not before & bit:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            after = before & ~bit if change.flags & DELETE else before | bit
            if not after:
                del self._filters[change.ident]
                self._epoll.unregister(change.ident)
                continue
            try:
                (self._epoll.modify if before else self._epoll.register)(change.ident, after)
            except FileNotFoundError:  # it was closed, and is another one now: a kqueue has forgotten it
                self._epoll.register(change.ident, bit)
                after = bit
            self._filters[change.ident] = after
        return self._events(max_events, timeout) if max_events else []

    def _events(self, max_events: int, timeout: Optional[float]) -> List[Kevent]:
        events: List[Kevent] = []
        ready: List[Tuple[int, int]] = self._epoll.poll(timeout)
        for descriptor, found in ready:
            wanted = self._filters.get(descriptor, 0)
            flags = EOF if found & (_EPOLLERR | _EPOLLHUP) else 0
            if wanted & _EPOLLIN and (found & _EPOLLIN or flags):
                events.append(Kevent(descriptor, READ, flags))
            if wanted & _EPOLLOUT and (found & _EPOLLOUT or flags):
                events.append(Kevent(descriptor, WRITE, flags))
        return events[:max_events]

    def close(self) -> None:
        self._epoll.close()


def give_kqueue() -> None:
    everything: Any = select
    everything.kqueue, everything.kevent = Kqueue, Kevent
    everything.KQ_FILTER_READ, everything.KQ_FILTER_WRITE = READ, WRITE
    everything.KQ_EV_ADD, everything.KQ_EV_DELETE, everything.KQ_EV_EOF = ADD, DELETE, EOF


def take_attributes(names: Dict[str, List[str]]) -> None:
    for module_name, attributes in names.items():
        # Both the module that users import and the one in C that it comes from.
        for name in (module_name, f"_{module_name}", "posix" if module_name == "os" else ""):
            try:
                module = __import__(name) if name else None
            except ImportError:
                continue
            for attribute in attributes:
                if module is not None and hasattr(module, attribute):
                    delattr(module, attribute)


def take_paths() -> None:
    """The paths do not exist, except for psutil, which has its own ways elsewhere."""

    def hidden(path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        text = os.fsdecode(path)
        if not any(text == each or text.startswith(f"{each}/") for each in MISSING_PATHS):
            return False
        caller: Any = sys._getframe(2)
        while caller is not None and caller.f_globals.get("__name__") in (__name__, "posixpath", "genericpath"):
            caller = caller.f_back
        return caller is None or not str(caller.f_globals.get("__name__")).startswith("psutil")

    class Hiding:
        """Calls a function, unless its path is hidden. If it were a function, pathlib would make it a method."""

        def __init__(self, function: Any) -> None:
            self._function = function

        def __call__(self, path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if hidden(path):
                if self._function.__name__ == "access":
                    return False
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return self._function(path, *args, **kwargs)

    for name in ("open", "stat", "lstat", "listdir", "scandir", "access", "mkdir", "readlink", "statvfs"):
        if hasattr(os, name):
            setattr(os, name, Hiding(getattr(os, name)))
    hiding_open: Any = Hiding(builtins.open)
    builtins.open = io.open = hiding_open


class NoSuchModules:
    """Refuses to find modules."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in MODULES_NOT_ON_WINDOWS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if PLATFORM == "macos":
    give_kqueue()
    take_attributes({"select": NOT_ON_MACOS["select"]})  # before the standard library chooses
    with contextlib.suppress(ImportError):
        import psutil  # noqa: F401 - it would look for the other system's part of it
    take_attributes(NOT_ON_MACOS)
    take_paths()
    sys.platform = "darwin"
elif PLATFORM == "windows":
    import _socket

    del _socket.socketpair  # the standard library makes one of TCP, as it does on Windows
    os.supports_dir_fd.clear()  # shutil asks whether folders have descriptors
    # What the standard library needs of POSIX is imported first: it would need Windows' own modules otherwise.
    for name in ("multiprocessing.connection", "subprocess", "tempfile"):
        __import__(name)
    import selectors

    take_attributes(NOT_ON_WINDOWS)
    take_paths()
    everything: Any = selectors
    everything.DefaultSelector = selectors.SelectSelector
    for name in MODULES_NOT_ON_WINDOWS:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, NoSuchModules)
    sys.platform = "win32"
