"""Protocol: the messages between llama.cpp's RPC backend and a worker, as version 7 has them.

A request is its command (one byte), the size of its data (8 bytes, little-endian) and the data. The
answer, if the command has one, is its size (8 bytes) and its data. The backend sends the next
request only after the answer. (`ggml-rpc.cpp` in llama.cpp's sources.)
"""

import struct
from collections.abc import Mapping

# Every part counts: the last one changes with the numbers of ggml's operations.
VERSION = (7, 0, 0)
REQUEST = struct.Struct("<BQ")
SIZE = struct.Struct("<Q")

HELLO = 14
GET_TENSOR = 8
GET_DEVICE_MEMORY = 11
DEVICE_COUNT = 15

# The data of a request of HELLO: what each side can do beside TCP; zeros are nothing.
NO_CAPABILITIES = bytes(24)
_HELLO = struct.Struct("<BBBx24s")
HELLO_SIZE = _HELLO.size
_MEMORY = struct.Struct("<QQ")
_COUNT = struct.Struct("<I")

# Answers in place of a worker that is gone. They keep the library going, so that it neither waits
# nor ends the process: no devices and no buffers are to be had, tensors that it sends count as
# known, and those that it asks for are zeros. Nothing of it may be used.
_STAND_INS: Mapping[int, bytes] = {
    0: bytes(16),  # ALLOC_BUFFER: none
    1: SIZE.pack(64),  # GET_ALIGNMENT
    2: SIZE.pack(1 << 62),  # GET_MAX_SIZE
    3: SIZE.pack(4096),  # BUFFER_GET_BASE: the library refuses 0
    7: b"\1",  # SET_TENSOR_HASH: known
    9: b"\1",  # COPY_TENSOR: done
    GET_DEVICE_MEMORY: _MEMORY.pack(1 << 30, 1 << 30),
    13: SIZE.pack(0),  # GET_ALLOC_SIZE: the library takes the tensor's own size
    HELLO: _HELLO.pack(*VERSION, NO_CAPABILITIES),
    DEVICE_COUNT: _COUNT.pack(0),
}


def request(command: int, data: bytes = b"") -> bytes:
    """Return a whole request."""
    return REQUEST.pack(command, len(data)) + data


def answer_size(command: int, data: bytes) -> int | None:
    """Return the bytes of the answer to a request with this data; None where there is none."""
    if command == GET_TENSOR:
        return int(SIZE.unpack(data[-SIZE.size :])[0])
    stand_in = _STAND_INS.get(command)
    return None if stand_in is None else len(stand_in)


def stand_in(command: int, size: int) -> bytes:
    """Return the answer in place of a worker that is gone."""
    return _STAND_INS.get(command, bytes(size))


def version_in(answer: bytes) -> tuple[int, int, int]:
    """Return the worker's version of the protocol, from its answer to HELLO."""
    major, minor, patch, _ = _HELLO.unpack(answer)
    return major, minor, patch


def version_text(version: tuple[int, int, int]) -> str:
    """Return a version as text, such as 7.0.0."""
    return ".".join(map(str, version))


def hello(version: tuple[int, int, int] = VERSION) -> bytes:
    """Return the answer to HELLO of a worker that can do nothing beside TCP."""
    return _HELLO.pack(*version, NO_CAPABILITIES)
