"""Every error a user can meet, as one tree.

    HoldfastError
    ├── DeclarationError          a flow, source, view or sink is declared wrongly
    │   ├── ArgumentError         a function was given what it cannot take (subject, argument, expected, found)
    │   ├── SchemaError           a schema text that does not parse, or a row or file that does not fit it
    │   │   └── SchemaChanged     an input or source has other columns than its rows were taken with
    │   ├── SqlError              the SQL of a view is wrong
    │   │   ├── UnknownName       a table or column that is not there
    │   │   ├── AmbiguousName     a column that several inputs have
    │   │   └── TypeMismatch      an expression whose types do not fit
    │   ├── ViewCycle             a view that would read itself
    │   ├── WrongVerb             a method of inputs with a key, called on one without, or the other way round
    │   └── Unsupported           SQL that is right, but that Holdfast cannot maintain yet
    ├── InputError                the data that arrived is wrong; the flow stays usable
    │   ├── BadFile               a malformed or truncated file in a source
    │   │   └── FileMoved         … or one that was taken already, under another path
    │   ├── NegativeMultiplicity  a row was deleted more often than inserted
    │   └── MultiplicityOverflow  more copies of a row than can be counted
    ├── LoopDiverged              a loop still changes after its bound of rounds
    ├── EvaluationError           an expression failed on a row (overflow, division by zero, ...)
    ├── EpochUnavailable          a read as of an epoch that is not there (yet, or any more)
    ├── ScanNeeded                a look-up by columns that are not the key by which a view is kept
    ├── ClockJumped               the host's clock went ahead further than time has passed
    ├── SinkError                 a sink refused a commit
    ├── LeaseError                a lease cannot be used: a wrong address, a server that does not answer
    ├── MemberLost                an executor was lost, and the policy says to stop
    ├── ExchangeFailed            executors that are there could not get each other's rows
    ├── TooFewMembers             the members that a run waits for did not come in time
    ├── MembershipError           the user's membership handler raised
    ├── TasksLost                 what ran an epoch's tasks died, as often as Spark tries; or Spark itself is gone
    ├── SparkNotStarted           Spark cannot be started here: there is no Java, or it is too old
    ├── AfterEpoch                an epoch is complete, and something that follows it failed
    ├── FlowBusy                  a call from inside an epoch, or beside a standby, that cannot be made there
    └── LogError                  the log directory cannot be used
        ├── LogBusy               another process has it
        ├── LogForeign            it belongs to another flow
        ├── LogFormat             it was written by a newer Holdfast
        ├── LogDamaged            a layer or lineage record does not read back
        ├── LogUnreadable         a file of the log cannot be read now; nothing is known of what it holds
        ├── MemberUnreachable     an executor that keeps layers of the flow cannot be reached
        ├── Fenced                another driver has taken over; this one must stop
        │   └── LeaseLost         … or may do so, since this one has lost its lease
        └── StoreError            a place that holds a copy of the log failed
            └── TooFewLocations   too few of them are there to be sure that nothing is lost

Each carries, beside its text, the fields a program needs (``error.fields``).
"""

from __future__ import annotations

from holdfast.reporting.redaction import redact, redacted


class HoldfastError(Exception):
    """Base of the tree. ``fields`` holds what a program needs: name, epoch, path, position, rows, ... Neither the text
    nor a field shows a credential."""

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(redact(message))
        self.fields: dict[str, object] = redacted(fields)


class DeclarationError(HoldfastError):
    """A flow, source, view or sink is declared wrongly."""


class ArgumentError(DeclarationError):
    """A function was given an argument that it cannot take; fields: subject, argument, expected, found."""


class SchemaError(DeclarationError):
    """A schema text that does not parse, or a row or file that does not fit its schema."""


class SchemaChanged(SchemaError):
    """An input or source is declared with other columns than epochs took of it before."""


class SqlError(DeclarationError):
    """The SQL of a view is wrong."""


class UnknownName(SqlError):
    """A table or column that is not there."""


class AmbiguousName(SqlError):
    """A column name that several inputs have."""


class TypeMismatch(SqlError):
    """An expression whose types do not fit."""


class ViewCycle(DeclarationError):
    """A view that would read itself, by way of others or directly."""


class WrongVerb(DeclarationError, AttributeError):
    """A method of inputs with a key, called on one without a key, or the other way round. (An AttributeError too, so
    that ``hasattr`` says that it is not there.)"""


class Unsupported(DeclarationError):
    """SQL that is right, but that Holdfast cannot maintain incrementally yet."""


class InputError(HoldfastError):
    """The data that arrived is wrong. Nothing of the epoch took effect; the flow stays usable."""


class BadFile(InputError):
    """A malformed or truncated file in a source."""


class FileMoved(BadFile):
    """A file of a source was taken already, under another path: its rows would count twice."""


class NegativeMultiplicity(InputError):
    """A row was deleted more often than it was inserted."""


class MultiplicityOverflow(InputError):
    """A row would be there more often than can be counted (2^63 - 1 times)."""


class LoopDiverged(HoldfastError):
    """A recursive view or an iteration still changes after as many rounds as it may take; fields: view, epoch,
    max_rounds, round, changing, rows. Nothing of the epoch took effect; the flow stays usable."""


class EvaluationError(HoldfastError):
    """An expression failed on a row: an overflow, a division by zero, a cast that does not fit."""


class EpochUnavailable(HoldfastError):
    """A read as of an epoch that is not there yet, or that compaction has passed."""


class ScanNeeded(HoldfastError):
    """A look-up by columns that are not the key by which a view is kept: it needs a scan; fields: view, key, given."""


class ClockJumped(HoldfastError):
    """The host's clock is further ahead than time has passed, and rows would expire for good."""


class SinkError(HoldfastError):
    """A sink refused a commit."""


class LeaseError(HoldfastError):
    """A lease cannot be used: its address is wrong, or what it is kept in does not answer."""


class MemberLost(HoldfastError):
    """An executor was lost, and the policy (``on_loss="terminate"``) says to stop."""


class ExchangeFailed(HoldfastError):
    """Executors that are there could not get each other's rows, several times: the network between them is not whole.
    Nothing of the epoch took effect; the flow stays usable."""


class TooFewMembers(HoldfastError):
    """The members that a run waits for did not come in time."""


class MembershipError(HoldfastError):
    """A function that is told of membership changes raised."""


class TasksLost(HoldfastError):
    """What ran a job's tasks died again and again (a Python worker, an executor), or Spark itself is gone. Nothing of
    the epoch took effect; the flow stays usable if Spark is."""


class SparkNotStarted(HoldfastError):
    """Spark cannot be started here: there is no Java, it is too old, or it ended at once."""


class AfterEpoch(HoldfastError):
    """Something failed after an epoch was complete: it counts (``fields["complete"]``), and its rows must not be pushed
    again. What failed is made up for before the next epoch."""


class FlowBusy(HoldfastError):
    """A call that cannot be made while the flow does what it does: from inside an epoch, or while it stands by."""


class LogError(HoldfastError):
    """The log directory cannot be used."""


class LogBusy(LogError):
    """Another process has the log."""


class LogForeign(LogError):
    """The log belongs to another flow."""


class LogFormat(LogError):
    """The log was written by a newer Holdfast."""


class LogDamaged(LogError):
    """A layer or a lineage record does not read back."""


class LogUnreadable(LogError):
    """A file of the log cannot be read now (permissions, too many open files, a failing mount). That says nothing of
    what it holds: it is left where it is, and what was asked for can be asked again."""


class MemberUnreachable(LogError):
    """An executor that keeps layers of the flow cannot be reached: it was lost, or its tasks do not come to run on it.
    That says nothing of the layers. The flow looks who is there, and recovers without it."""


class Fenced(LogError):
    """Another driver has taken over the flow; this one must stop."""


class LeaseLost(Fenced):
    """This driver has lost its lease, so another may take over; this one must stop."""


class StoreError(LogError):
    """A place that holds a copy of the log failed."""


class TooFewLocations(StoreError):
    """Too few of the log's locations are reachable and whole to be sure that nothing is lost that was safe."""
