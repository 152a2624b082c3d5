"""Injected faults: rules for the system calls and files that the shim (fault_shim.c) answers itself."""

import errno
import mmap
import os
import pathlib
import struct
import subprocess

WRITE, SYNC, LENGTH, READ, OPEN, RENAME = 1, 2, 4, 8, 16, 32
LOG, SPARE, TREE, FOLDER, TEMPORARY, OTHER = 1, 2, 4, 8, 16, 32
ERROR, HALF, TORN, LOST = 0, 1, 2, 3
EIO, ENOSPC = errno.EIO, errno.ENOSPC

RULES = 8
# As `struct rule` of the shim: armed, ops, kinds, action, error, min_bytes, skip, times, seen, hits.
RULE = struct.Struct("=10I")


def built(folder):
    """The shim, compiled into the folder."""
    made = folder / "fault_shim.so"
    source = pathlib.Path(__file__).with_name("fault_shim.c")
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", made, source, "-ldl", "-lpthread"], check=True)
    return made


class Faults:
    """The rules that a server started with `environment()` follows; they may change while it runs."""

    def __init__(self, shim, control):
        self.shim, self.control = shim, control
        control.write_bytes(bytes(RULES * RULE.size))
        with open(control, "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), RULES * RULE.size)

    def environment(self, folder, losing=False):
        """The environment of a server on `folder`. `losing` enables LOST syncs, which makes writes slower."""
        words = {"LD_PRELOAD": str(self.shim), "FAULT_CONTROL": str(self.control), "FAULT_FOLDER": os.path.realpath(folder)}
        return words | ({"FAULT_TRACKS": "1"} if losing else {})

    def arm(self, ops, kinds, action=ERROR, error=EIO, skip=0, times=0, min_bytes=0, slot=0):
        """From the call number `skip` on, `times` of them (0: all) are answered by the shim."""
        words = [0, ops, kinds, action, error, min_bytes, skip, times, 0, 0]
        RULE.pack_into(self.memory, slot * RULE.size, *words)
        # Armed last: the server may be in a call.
        struct.pack_into("=I", self.memory, slot * RULE.size, 1)

    def clear(self):
        for slot in range(RULES):
            struct.pack_into("=I", self.memory, slot * RULE.size, 0)

    def hits(self, slot=0):
        return RULE.unpack_from(self.memory, slot * RULE.size)[9]

    def seen(self, slot=0):
        return RULE.unpack_from(self.memory, slot * RULE.size)[8]
