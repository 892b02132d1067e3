"""Framed msgpack messages over a socket, and the loop that follows a child through them.

A message is a length (8 bytes, little endian) and a msgpack tree. Nothing that arrives is ever executed: no pickle.
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
    """The message as bytes, encoded in place: payloads reach hundreds of megabytes."""
    message = bytearray(HEADER.size)
    msgspec.msgpack.Encoder().encode_into(tree, message, HEADER.size)
    HEADER.pack_into(message, 0, len(message) - HEADER.size)
    return message


def send(sock: socket.socket, tree: Any) -> None:
    """Sends the whole message; blocks until it is out."""
    sock.sendall(pack(tree))


def receive(sock: socket.socket) -> Any:
    """One message from a blocking socket.

    Raises:
        EOFError: the other side closed before a whole message came.
    """
    inbox = MessageReader()
    while (tree := inbox.read(sock)) is None:
        pass
    return tree


class MessageReader:
    """Puts messages together from what a socket delivers."""

    def __init__(self) -> None:
        self._expect(HEADER.size, is_header=True)

    def _expect(self, count: int, *, is_header: bool) -> None:
        self._buffer, self._filled, self._is_header = bytearray(count), 0, is_header

    def read(self, sock: socket.socket) -> Any:
        """One message if it is now complete, else None; never reads past its end.

        Raises:
            EOFError: the other side closed.
            ValueError: what came is not a message.
        """
        try:
            count = sock.recv_into(memoryview(self._buffer)[self._filled :])
        except BlockingIOError:
            return None
        except ConnectionResetError as fault:
            raise EOFError from fault
        if count == 0:
            raise EOFError
        self._filled += count
        return self._finish_part() if self._filled == len(self._buffer) else None

    def _finish_part(self) -> Any:
        data, was_header = self._buffer, self._is_header
        if was_header:
            (count,) = HEADER.unpack(data)
            if not 0 < count <= MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {count} bytes")
            self._expect(count, is_header=False)
            return None
        self._expect(HEADER.size, is_header=True)
        return msgspec.msgpack.decode(data)


class RequestReader:
    """The small messages with descriptors that come through one socket, whole and in order.

    A kernel may join two packets; the length in front of each keeps them apart, and descriptors keep their order.
    """

    def __init__(self) -> None:
        self._data, self._descriptors = bytearray(), []

    def read(self, sock: socket.socket) -> list[tuple[Any, list[int]]]:
        """The messages that are whole now, each with the descriptors that its `descriptors` field counts.

        Raises:
            EOFError: the other side closed.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(sock, CHUNK_BYTES, 16)
        except ConnectionError as fault:
            raise EOFError from fault
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
            taken, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            del self._data[:end]
            yield message, taken


class OutputTail:
    """The last 16 KB of what a child wrote."""

    def __init__(self) -> None:
        self._kept = b""

    def read(self, pipe: socket.socket) -> bool | None:
        """Takes what is there: True if there was something, None if not yet, False once the writers have closed."""
        try:
            data = pipe.recv(CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return False
        self._kept = (self._kept + data)[-TAIL_BYTES:]
        return bool(data)

    def drain(self, pipe: socket.socket) -> str:
        """The text, with whatever still waits in the pipe; for when nobody writes any more."""
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
    """Feeds a child and hears it until it has answered.

    Args:
        channel: non-blocking.
        tick: called at least every 50 ms; returns True once the child has ended; raises at a limit.
        on_message: called with each message; True means that it was the last one.
        outgoing: bytes to send meanwhile.
        output: the child's stdout and stderr, kept flowing so that the child never blocks on them.
    Returns:
        Whether the last message came; False when the child ended without it.
    Raises:
        ValueError: the child sent something that is not a message.
    """
    inbox, left, ended = MessageReader(), memoryview(outgoing), False
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0))
        if output:
            selector.register(output[0], selectors.EVENT_READ)
        while True:
            was_ended, ended = ended, tick()
            mask = {key.fileobj: mask for key, mask in selector.select(0 if ended else POLL_INTERVAL_S)}
            if output and output[0] in mask and output[1].read(output[0]) is False:
                selector.unregister(output[0])
            if mask.get(channel, 0) & selectors.EVENT_WRITE:
                left = send_available(channel, left)
                if not left:
                    selector.modify(channel, selectors.EVENT_READ)
            if mask.get(channel, 0) & selectors.EVENT_READ:
                try:
                    message = inbox.read(channel)
                except EOFError:
                    # It may live on with its channel closed: then its end or a limit is what comes next.
                    selector.unregister(channel)
                    continue
                if message is not None and on_message(message):
                    return True
            elif was_ended:
                # No end-of-file is waited for: a descendant may hold the channel open after the child's end.
                return False


def send_available(channel: socket.socket, remaining: memoryview) -> memoryview:
    """Sends what a non-blocking channel takes now; the rest is given back."""
    try:
        return remaining[channel.send(remaining[:CHUNK_BYTES]) :]
    except BlockingIOError:
        return remaining
    except OSError:
        return memoryview(b"")  # the child is gone: reading the channel tells the rest
