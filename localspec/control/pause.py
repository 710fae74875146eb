"""Pause: steps in which a text does not ask whether its drafter should read the prompt."""

from collections.abc import Sequence
from typing import NamedTuple

from localspec.control.joint_drafting import Drafting


class Pause(NamedTuple):
    """So many steps in which a text does not ask whether to read its prompt.

    It ends when another company is found: how many other texts there are, and in how many this
    drafter has read the prompt. survivals, drafting: what it offers meanwhile.
    """

    steps: int
    company: tuple[int, int]
    survivals: Sequence[float]
    drafting: Drafting
