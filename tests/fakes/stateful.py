"""State machines of hypothesis: how they are run, the same each time."""

import os
from collections.abc import Collection

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

# A run that looks for rare errors takes more.
_EXAMPLES = os.environ.get("LOCALSPEC_EXAMPLES")


def examples(usual: int) -> int:
    """How many examples a machine runs; LOCALSPEC_EXAMPLES replaces the usual number."""
    return int(_EXAMPLES or usual)


def run_machine(
    machine: type[RuleBasedStateMachine],
    *,
    examples: int,
    steps: int,
    phases: Collection[Phase] = tuple(Phase),
) -> None:
    """Run a machine. phases: GENERATE alone where threads take turns, or an error is expected."""
    with pytest.MonkeyPatch.context() as patch:
        # They would be those of whatever modules are loaded: by tests before, by plugins.
        patch.setattr(HypothesisProvider, "_maybe_draw_constant", no_constant, raising=False)
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                derandomize=True,
                phases=phases,
            ),
        )


def no_constant(*_: object, **__: object) -> None:
    """In place of a constant that hypothesis would draw."""
