"""Messages between tasks, and the check that all of them have arrived.

A message is ``(partition, (channel, buffer))``: the buffer is an Arrow IPC stream of rows for a channel, that is, for
one port of one operator. Results for the driver travel on the channel ``RESULT``, in the sender's own partition; an
error travels on ``FAILED``, to every partition.

A Python worker takes a connection that breaks off for the end of its input: when the JVM's side of a task fails (a
block cannot be fetched, the task is cancelled, the whole process dies), the Python side processes the rows that came
until then and ends normally. Spark drops what it returns, but a layer that it wrote would stay, under the epoch's
digest. So every task says on ``COUNT`` how many messages it sent to each partition, and a task that lacks some writes
nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

RESULT = -1
COUNT = -2
"""The channel of counts: how many messages one task sent to one partition. Every partition gets one, also if it is
0."""
FAILED = -3
"""The channel of errors."""

Message = tuple[int, tuple[int, bytes | pa.Table]]
"""(partition, (channel, buffer)). Within one task (`task.single_task`) the buffer is a table that was not encoded."""


class TruncatedInput(Exception):
    """A task's input ended too early. Not a mistake of the user: Spark knows of the failure, and retries if it can."""


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
    """Yield a task's messages, then its counts."""
    sent = [0] * partitions
    for message in messages:
        sent[message[0]] += 1
        yield message
    yield from counts(sent)


def counts(sent: Sequence[int]) -> Iterator[Message]:
    """Yield only the counts. ``sent``: partition → number of messages."""
    for partition, count in enumerate(sent):
        yield partition, (COUNT, count.to_bytes(8, "little"))


def arrived(messages: Iterable[Message], senders: int) -> list[Message]:
    """Return the messages without the counts. Raises `TruncatedInput` if any message of the ``senders`` tasks is
    missing."""
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
    # A task that failed sends its error and no counts; a task that receives an error computes nothing.
    if not failed and (heard != senders or missing):
        raise TruncatedInput(f"{heard} of {senders} tasks have said what they sent, and {missing} messages are missing")
    return found


def failure(error: Exception, partitions: int) -> list[Message]:
    """The messages of a task that failed: its error, for every partition."""
    return [(partition, (FAILED, pickle.dumps(error))) for partition in range(partitions)]
