"""What tasks send each other, and whether all of it has arrived.

Messages are ``(partition, (channel, buffer))``: a buffer is an Arrow IPC stream of rows for a channel, that is, for one
port of one operator. Results for the driver travel on the channel ``RESULT``, in the sender's own partition; an error
travels on ``FAILED``, to every partition.

A Python worker takes a connection that breaks off for the end of its input: when the JVM's side of a task fails (a
block cannot be fetched, the task is cancelled, the whole process dies), the Python side goes on with what came until
then, to its end. Spark drops what it returns, but a layer that it wrote would stay, under the epoch's digest. So every
task says on ``COUNT`` how many messages it has sent to each partition, and a task that lacks some writes nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

RESULT = -1
COUNT = -2
"""How many messages one task has sent to one partition. It is sent to all: a quiet partition advances too."""
FAILED = -3
"""An error that a task met."""

Message = tuple[int, tuple[int, bytes | pa.Table]]
"""(partition, (channel, buffer)). Within one task (`task.single_task`) rows go as they are, not as a buffer."""


class TruncatedInput(Exception):
    """A task's input ended too early. Not an error of the user's: Spark knows already, and tries again if it can."""


def encode(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def decode(buffer: bytes | pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(buffer) as reader:
        return reader.read_all()


def counted(messages: Iterable[Message], partitions: int) -> Iterator[Message]:
    """All that a task sends, and its counts."""
    sent = [0] * partitions
    for message in messages:
        sent[message[0]] += 1
        yield message
    yield from counts(sent)


def counts(sent: Sequence[int]) -> Iterator[Message]:
    """The counts alone; ``sent``: partition → messages."""
    for partition, count in enumerate(sent):
        yield partition, (COUNT, count.to_bytes(8, "little"))


def arrived(messages: Iterable[Message], senders: int) -> list[Message]:
    """The messages without the counts. Raises `TruncatedInput` if any of what ``senders`` tasks sent is missing."""
    found, heard, missing, failed = [], 0, 0, False
    for message in messages:
        channel, buffer = message[1]
        if channel == COUNT:
            heard += 1
            missing += int.from_bytes(buffer, "little")
        else:
            failed = failed or channel == FAILED
            missing -= 1
            found.append(message)
    # A task that met an error says that, and no more; whoever hears of it computes nothing.
    if not failed and (heard != senders or missing):
        raise TruncatedInput(f"{heard} of {senders} tasks have said what they sent, and {missing} messages are missing")
    return found


def failure(error: Exception, partitions: int) -> list[Message]:
    """What a task sends that met an error."""
    return [(partition, (FAILED, pickle.dumps(error))) for partition in range(partitions)]
