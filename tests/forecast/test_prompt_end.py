"""Plans of texts behind long prompts, of which a draft model may read the end alone."""

from fakes.pycode import load

from localspec.bench.experiments.simulated_drafter import COSTS
from localspec.control.drafter_cost import DrafterCost
from localspec.drafters.text_part import END_TOKENS
from localspec.forecast.answers import write_answer
from localspec.forecast.simulation import Simulation
from localspec.forecast.timing import StepCosts
from localspec.generation_config import GenerationConfig, GenerationOptions

CODE = "\n".join(f"def value_{number}(items):\n    return {number}\n" for number in range(40))


def test_auto_of_one_text_is_simulated_with_drafts_from_the_end() -> None:
    """The draft model itself reads the end, and nothing of the rest."""
    options: GenerationOptions = {"max_tokens": 24, "temperature": 0.0, "ignore_eos": True}
    with load(threads=1, context=1024) as engine:
        with engine.slots.own.new_context(GenerationConfig.of(**options)) as context:
            answer, _ = write_answer(engine, context, CODE, **options)
        [cache] = engine.drafter_set.sequences.values()
        cache.truncate(0)
        [drafter] = [each for each in engine.drafter_set.drafters if not each.traits.cheap]
        costs = StepCosts(
            dict(COSTS["F16 A"]), 0.0, 0.0, {drafter.name: DrafterCost(0.05, 0.05, 0.03)}
        )
        simulation = Simulation([drafter], costs, {drafter.name: 0.9}, clock=lambda: 0.0)
        steps = simulation.run(answer)
        assert any(step.drafted for step in steps)
        reading = sum(step.reading for step in steps)
        assert 0 < reading < 0.03 * (END_TOKENS + 24)
        assert len(cache.tokens) < END_TOKENS + 24 + 32 < len(answer.prompt) / 2
