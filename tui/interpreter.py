"""Interpreter: settings of Python that give the engine thread more time than the screen."""

import gc
import sys

# Seconds the engine thread waits at most for the screen's thread to release the GIL. Windows waits
# in whole milliseconds, and for less than one in a loop that keeps a core busy.
_SWITCH_INTERVAL = 0.001 if sys.platform == "win32" else 0.0005
# New objects between two garbage collections; the screen creates about 10,000 a second.
_YOUNG_THRESHOLD = 10_000


def prioritize_engine() -> None:
    """Switch threads more often, and collect garbage less often."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(_YOUNG_THRESHOLD, *gc.get_threshold()[1:])


def freeze_garbage_collector() -> None:
    """Exclude all objects that exist now from later collections, which would take 70 ms each."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
