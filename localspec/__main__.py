"""`localspec` and `python -m localspec`."""

import signal

_OWN = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _OWN:
    # Ctrl-C ends the program without a word until there is somebody to answer it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from localspec.cli.interrupt import INTERRUPTED  # noqa: E402
from localspec.cli.main import main  # noqa: E402


def run() -> None:
    """Run the command line and exit; Ctrl-C at any time, and any number of them, is no error."""
    if not _OWN:
        main()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    run()
