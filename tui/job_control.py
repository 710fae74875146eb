"""Job control: whether the shell that began the chat can continue it once it is suspended."""

import os


def is_job_of_shell() -> bool:
    """Whether this process is a job of a shell in its terminal.

    A program in between, as a script, would wait for a suspended chat, and the shell for that.
    """
    if os.name == "nt":
        return False
    is_job = os.getpgrp() == os.getpid() != os.getsid(0)
    try:
        return is_job and os.getsid(os.getppid()) == os.getsid(0)
    except OSError:  # of another user, as with sudo
        return False
