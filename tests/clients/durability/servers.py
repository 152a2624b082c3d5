"""Servers that a test starts, kills and starts again on one folder."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time

from pymongo import MongoClient

BINARY = os.environ["SHEAF_BINARY"]
START_SECONDS_MAX = 30


def _die_with_parent():
    # If the test run itself is killed, its servers end too.
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server process on `folder`; its log is kept next to it, across restarts."""

    def __init__(self, folder, *flags):
        self.folder = folder
        self.flags = flags
        self.port = free_port()
        self.log_path = str(folder) + ".log"
        self.process = None
        self.preexec = None  # called in the process before it becomes the server
        self.environment = {}  # in addition to the test's environment

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    def _before(self):
        _die_with_parent()
        if self.preexec:
            self.preexec()

    def spawn(self):
        """Starts the process and does not wait for it to serve."""
        os.makedirs(self.folder, exist_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [BINARY, "--dbpath", str(self.folder), "--port", str(self.port), "--nounixsocket", *self.flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=self._before,
                env=os.environ | self.environment,
            )
        return self

    def start(self):
        """Starts the process and returns once it accepts connections."""
        self.spawn()
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()}"
            assert time.monotonic() < until, f"does not accept:\n{self.log()}"
            time.sleep(0.02)

    def client(self, **options):
        return MongoClient(self.uri, **{"serverSelectionTimeoutMS": 5000, "retryWrites": False, "retryReads": False} | options)

    def kill(self):
        """SIGKILL: the process cannot write anything more."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit status."""
        self.process.terminate()
        return self.process.wait(timeout=30)

    def log(self, lines=30):
        with open(self.log_path, errors="replace") as f:
            return "".join(f.readlines()[-lines:])


@contextlib.contextmanager
def server(folder, *flags):
    """A running server, which is stopped when the block ends."""
    s = Server(folder, *flags).start()
    try:
        yield s
    finally:
        if s.process.poll() is None:
            s.kill()
