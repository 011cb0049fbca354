"""A network of its own for a process: loopback and nothing else, so that no other machine reaches what listens in it.

TensorFlow's servers (`tf.train.Server`, those of tf.data service) listen on every interface of the machine, without a
password, and whoever reaches one can read and write files as the user. No option of theirs prevents it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from pipeline_bench.errors import PipelineBenchError

# <sched.h>, <linux/sockios.h> and <net/if.h>
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_REQUEST = struct.Struct("16sH22x")
"""struct ifreq: the interface's name, and its flags in the union behind it."""


def enter() -> None:
    """Move this process, and what it starts from now on, into a new network with loopback only.

    With the privilege to do so (root) in a new network namespace; without it in a new user namespace as well, in which
    the user and the group stay who they are. This process must have one thread.

    Raises:
        OSError: the system allows neither.
    """
    user, group = os.getuid(), os.getgid()
    try:
        _unshare(_CLONE_NEWNET)
    except PermissionError:
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        loopback = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _REQUEST.pack(b"lo", 0))
        flags = _REQUEST.unpack(loopback)[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _REQUEST.pack(b"lo", flags | _IFF_UP))


def _unshare(namespaces: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(namespaces) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def attempt() -> None:
    """Try it, in a child.

    Raises:
        PipelineBenchError: this system does not allow it; the message is the system's reason.
    """
    try:
        enter()
    except OSError as error:
        raise PipelineBenchError(error.strerror or str(error)) from error
