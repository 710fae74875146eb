"""A training that has ended, as its report shows it."""

from pathlib import Path

from localspec.distillation.last_trial import Sample, Trial
from localspec.distillation.trained import Trained, TrainingFacts

FACTS = TrainingFacts(
    target="target-q8_0.gguf",
    target_hash="ab" * 32,
    texts="chats",
    prompts=900,
    held_out=32,
    answers=21_777,
    tokens=30_000,
    rounds=14,
    settings={"minutes": "8", "type": "Q8_0"},
    device="1 CPU threads",
    size=5_100_000,
    foreseen=480.0,
    taken=510.0,
    phases={"writing texts": 120.0, "training": 300.0},
)
SAMPLE = Sample(
    "user\nHow do I list files?",
    [("Run", "plain"), (" ls", "corrected"), (" -l", "draft-model x"), (" now", "bonus")],
)


def trained(
    *, own: str = "/models/eagle3-x-Q8_0.gguf", target: str = FACTS.target, sample: Sample = SAMPLE
) -> Trained:
    """A head that was trained. own: its file. sample: of its answers."""
    trials = [
        Trial(
            name, temperature, 0.45, steps, 61.5, 1.0, places, costs, 8, [sample] if places else []
        )
        for name, steps, costs, places in (
            (own, 2.7, [1.1, 1.2, 1.28, 1.5], [0.7, 0.5, 0.3, 0.2]),
            ("models/draft.gguf", 2.3, [1.4, 1.8, 1.9, 2.3], [0.6, 0.4, 0.2, 0.1]),
            ("none", 1.0, [], []),
            ("suffix", 1.3, [1.0], [0.3]),
        )
        for temperature in (0.0, 0.8)
    ]
    history = [[0.1, 0.05, 0.02, 0.01], [0.5, 0.4, 0.3, 0.25], [0.65, 0.5, 0.4, 0.35]]
    facts = TrainingFacts(**{**{n: getattr(FACTS, n) for n in FACTS.__slots__}, "target": target})
    return Trained(Path(own), "eagle3", True, history, facts, trials, True, "reads layers 2, 5, 7")
