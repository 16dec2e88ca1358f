"""Stops one thread of a child process through ptrace(2), to act a thread that is stuck."""

import ctypes
import os
import unittest
from contextlib import contextmanager
from pathlib import Path

ATTACH, DETACH = 16, 17
WALL = 0x40000000  # __WALL: waitpid for threads of other processes
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def busiest_thread(pid):
    """The thread that has used most processor time."""

    def ticks(task):
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    return int(max(Path(f"/proc/{pid}/task").iterdir(), key=ticks).name)


@contextmanager
def frozen(thread):
    if libc.ptrace(ATTACH, thread, None, None) != 0:
        raise unittest.SkipTest(f"ptrace is not allowed: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        libc.ptrace(DETACH, thread, None, None)
