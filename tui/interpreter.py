"""Interpreter: how Python is to divide its time between the screen and the engine."""

import gc
import sys

# Seconds that the engine's thread waits, at most, for the screen's to let go of the interpreter.
_SWITCH = 0.0005
# Objects made before the young ones are looked through; a screen makes some 10,000 a second.
_YOUNG = 10_000


def favour_engine() -> None:
    """Let the screen hold it up as little as may be."""
    sys.setswitchinterval(_SWITCH)
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


def keep_what_is_there() -> None:
    """Do not look through it again for what nobody needs: that takes 70 ms beside a model."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
