"""Length-prefixed msgpack messages over a socket, and the event loop that talks to a child.

A message is a length (8 bytes, little endian) followed by a msgpack tree. Received data is never executed: no pickle.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

HEADER = struct.Struct("<Q")
MAX_MESSAGE_BYTES = 64 << 30
CHUNK_BYTES = 1 << 20
TAIL_BYTES = 16 << 10
POLL_INTERVAL_S = 0.05


def pack(tree: Any) -> bytearray:
    """Encode a message in place, without a second copy: payloads reach hundreds of megabytes."""
    message = bytearray(HEADER.size)
    msgspec.msgpack.Encoder().encode_into(tree, message, HEADER.size)
    HEADER.pack_into(message, 0, len(message) - HEADER.size)
    return message


def send(sock: socket.socket, tree: Any) -> None:
    """Send a whole message; blocks until everything is written."""
    sock.sendall(pack(tree))


def receive(sock: socket.socket) -> Any:
    """Receive one message from a blocking socket.

    Raises:
        EOFError: the peer closed the socket before a complete message arrived.
    """
    reader = MessageReader()
    while (tree := reader.read(sock)) is None:
        pass
    return tree


class MessageReader:
    """Assembles messages from the chunks that a socket delivers."""

    def __init__(self) -> None:
        self._expect(HEADER.size, is_header=True)

    def _expect(self, count: int, *, is_header: bool) -> None:
        self._buffer, self._filled, self._is_header = bytearray(count), 0, is_header

    def read(self, sock: socket.socket) -> Any:
        """Return a message once it is complete, else None; never reads past its end.

        Raises:
            EOFError: the peer closed the socket.
            ValueError: the data is not a valid message.
        """
        try:
            count = sock.recv_into(memoryview(self._buffer)[self._filled :])
        except BlockingIOError:
            return None
        except ConnectionResetError as error:
            raise EOFError from error
        if count == 0:
            raise EOFError
        self._filled += count
        return self._finish_part() if self._filled == len(self._buffer) else None

    def _finish_part(self) -> Any:
        data, was_header = self._buffer, self._is_header
        if was_header:
            (count,) = HEADER.unpack(data)
            if not 0 < count <= MAX_MESSAGE_BYTES:
                raise ValueError(f"invalid message length: {count} bytes")
            self._expect(count, is_header=False)
            return None
        self._expect(HEADER.size, is_header=True)
        return msgspec.msgpack.decode(data)


class RequestReader:
    """Reads small messages with file descriptors from one socket, complete and in order.

    The kernel may merge two packets; the length prefix separates them, and descriptors keep their order.
    """

    def __init__(self) -> None:
        self._data, self._descriptors = bytearray(), []

    def read(self, sock: socket.socket) -> list[tuple[Any, list[int]]]:
        """Return the complete messages, each with the number of descriptors that its `descriptors` field states.

        Raises:
            EOFError: the peer closed the socket.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(sock, CHUNK_BYTES, 16)
        except ConnectionError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        self._data += data
        self._descriptors += descriptors
        return list(self._complete_messages())

    def _complete_messages(self) -> Iterator[tuple[Any, list[int]]]:
        while len(self._data) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(self._data)[0]
            if len(self._data) < end:
                return
            message = msgspec.msgpack.decode(self._data[HEADER.size : end])
            count = message.get("descriptors", 0)
            attached, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            del self._data[:end]
            yield message, attached


class OutputTail:
    """The last 16 KB of a child's output."""

    def __init__(self) -> None:
        self._kept = b""

    def read(self, pipe: socket.socket) -> bool | None:
        """Read what is available: True if there was data, None if there is none yet, False at end of file."""
        try:
            data = pipe.recv(CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return False
        self._kept = (self._kept + data)[-TAIL_BYTES:]
        return bool(data)

    def drain(self, pipe: socket.socket) -> str:
        """Return the text including what is left in the pipe; call it after all writers have ended."""
        while self.read(pipe):
            pass
        return self._kept.decode(errors="replace").strip()


def exchange_messages(
    channel: socket.socket,
    tick: Callable[[], bool],
    on_message: Callable[[Any], bool],
    *,
    outgoing: bytes | bytearray | memoryview = b"",
    output: tuple[socket.socket, OutputTail] | None = None,
) -> bool:
    """Send to a child and receive from it until its last message.

    Args:
        channel: non-blocking.
        tick: called at least every 50 ms; returns True once the child has ended; raises at a limit.
        on_message: called with each message; returns True for the last one.
        outgoing: bytes to send at the same time.
        output: the child's stdout and stderr, drained so that the child never blocks on them.
    Returns:
        Whether the last message arrived; False if the child ended without it.
    Raises:
        ValueError: the child sent something that is not a message.
    """
    reader, remaining, ended = MessageReader(), memoryview(outgoing), False
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ | (selectors.EVENT_WRITE if remaining else 0))
        if output:
            selector.register(output[0], selectors.EVENT_READ)
        while True:
            was_ended, ended = ended, tick()
            events = {key.fileobj: mask for key, mask in selector.select(0 if ended else POLL_INTERVAL_S)}
            if output and output[0] in events and output[1].read(output[0]) is False:
                selector.unregister(output[0])
            if events.get(channel, 0) & selectors.EVENT_WRITE:
                remaining = send_available(channel, remaining)
                if not remaining:
                    selector.modify(channel, selectors.EVENT_READ)
            if events.get(channel, 0) & selectors.EVENT_READ:
                try:
                    message = reader.read(channel)
                except EOFError:
                    # The child may keep running with its channel closed: its exit or a limit ends the loop.
                    selector.unregister(channel)
                    continue
                if message is not None and on_message(message):
                    return True
            elif was_ended:
                # Do not wait for end of file: a descendant may keep the channel open after the child has exited.
                return False


def send_available(channel: socket.socket, remaining: memoryview) -> memoryview:
    """Send as much as a non-blocking channel accepts now, and return the rest."""
    try:
        return remaining[channel.send(remaining[:CHUNK_BYTES]) :]
    except BlockingIOError:
        return remaining
    except OSError:
        return memoryview(b"")  # the child is gone: reading the channel reports how
