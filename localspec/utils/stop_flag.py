"""StopFlag: asks work in another thread to end."""


class StopFlag:
    """A flag that is set once.

    It is no threading.Event: a Ctrl-C or the garbage collector inside `Event.set` could leave the
    event's lock taken. It is an object of its own, so that a generation that looks at it does not
    keep its reader alive.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Ask for the end."""
        self._set = True

    def is_set(self) -> bool:
        """Whether the end was asked for."""
        return self._set
