"""One connection that sends messages unchanged, without a driver."""

import itertools
import socket
import struct

import bson

OP_MSG = 2013
# A date outside the range of Python's datetime is not an error.
DATES = bson.CodecOptions(datetime_conversion=bson.codec_options.DatetimeConversion.DATETIME_AUTO)
_ids = itertools.count(1)


def message(body, sequences=(), flags=0, id_=None):
    """An OP_MSG with this body and document sequences: (name, [documents])."""
    content = struct.pack("<I", flags) + b"\0" + bson.encode(body)
    for name, documents in sequences:
        documents = b"".join(map(bson.encode, documents))
        name = name.encode() + b"\0"
        content += b"\1" + struct.pack("<i", 4 + len(name) + len(documents)) + name + documents
    return struct.pack("<iiii", 16 + len(content), id_ or next(_ids), 0, OP_MSG) + content


class Raw:
    """A socket to a server; a reply that takes longer than `timeout` seconds is an error."""

    def __init__(self, port, timeout=20, receive_bytes=None):
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))

    def send(self, content):
        self.socket.sendall(content)

    def read(self, size):
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self):
        """The body of the next reply, OP_MSG or OP_REPLY."""
        length, _, _, opcode = struct.unpack("<iiii", self.read(16))
        content = self.read(length - 16)
        return bson.decode(content[5:] if opcode == OP_MSG else content[20:], DATES)

    def command(self, body, sequences=()):
        self.send(message(body, sequences))
        return self.receive()

    def closed(self):
        """Whether the server closes the connection, after any remaining replies."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
