"""`localspec` and `python -m localspec`."""

# The built-in part of `signal`, whose import takes no time in which a Ctrl-C has no answer.
import _signal  # type: ignore[import-not-found]

_OWN = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _OWN:
    # Ctrl-C ends the program without a word until there is somebody to answer it.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import signal  # noqa: E402

from localspec.cli.interrupt import come_again_where_ignored  # noqa: E402
from localspec.cli.main import main  # noqa: E402
from localspec.utils.exit_codes import INTERRUPTED  # noqa: E402


def run() -> None:
    """Run the command line and exit; Ctrl-C at any time, and any number of them, is no error."""
    if not _OWN:
        main()
    come_again_where_ignored()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    run()
