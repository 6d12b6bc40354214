"""The exceptions of megamoe. Each message is a sentence: what was wanted, what was got, how to fix it."""


class Error(Exception):
    """Base of every exception that megamoe raises by itself."""


class InvalidArgumentError(Error, ValueError):
    """The caller passed something that no call could accept."""


class UnsupportedError(Error, NotImplementedError):
    """Understood, but not available in this build, backend or machine."""


class FormatError(Error, ValueError):
    """A file is broken, or holds something that is not understood."""


class IoError(Error, OSError):
    """The operating system refused to open, map, read or write."""


class OutOfMemoryError(Error, MemoryError):
    """Memory needed and memory available are in the message."""


class MismatchError(Error):
    """Ranks disagree: on shape, recipe, version, or on which layer is called next."""


class DeadlineError(Error, TimeoutError):
    """A wait passed its deadline; the message names rank, role, signal, seen, wanted."""


class PeerLostError(Error, ConnectionError):
    """Another rank died or left; the message names it."""


class AbortedError(Error):
    """The group was given up; the message names the first cause."""


class InternalError(Error):
    """A defect of megamoe."""


# In the order of megamoe::ErrorCode.
BY_CODE = (
    InvalidArgumentError,
    UnsupportedError,
    FormatError,
    IoError,
    OutOfMemoryError,
    MismatchError,
    DeadlineError,
    PeerLostError,
    AbortedError,
    InternalError,
)

for _class in (Error, *BY_CODE):
    _class.__module__ = "megamoe"  # where callers find them

__all__ = ["Error"] + [cls.__name__ for cls in BY_CODE]
