"""A model that is trained further on other text: another model, which its drafters know less."""

import sys
from pathlib import Path

import pytest
from fakes.trained import write_trained_target

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from localspec.gguf.reader import read_header  # noqa: E402
from localspec.training.bundled_pair import fine_tune  # noqa: E402
from localspec.training.bundled_pair.batches import train_tokenizer  # noqa: E402
from localspec.training.bundled_pair.gguf_import import TrainedFile  # noqa: E402


def test_questions_about_documented_names(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "left.py").write_text(f'def left():\n    """{"out " * 20}"""')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "words.py").write_text(
        "def short():\n    'Too short.'\n"
        f"def _own():\n    '{'Own. ' * 20}'\n"
        f"class Word:\n    '''{'A word. ' * 9}\n\n    Indented.\n    '''\n"
    )
    [[turn]] = fine_tune.documentation(tmp_path)
    assert turn.question == "What does words.Word do in Python?"
    assert turn.answer == f"{'A word. ' * 9}\n\nIndented."


def test_the_documentation_of_this_python() -> None:
    found = fine_tune.documentation(Path(sys.modules["json"].__path__[0]))
    assert any("json" in turn.answer.lower() for [turn] in found)


def test_a_model_is_trained_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    chats = [[fine_tune.Turn("ab?", "abcabc" * 40)]] * 4
    tokenizer = train_tokenizer(chats, 300)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    before, after = tmp_path / "target.gguf", tmp_path / "tuned.gguf"
    count = tokenizer.get_vocab_size()
    write_trained_target(before, tmp_path / "tokenizer.json", vocabulary=count)
    torch.manual_seed(1)
    fine_tune.fine_tune(before, after, chats, 1.0, 1e-2)
    old, new = TrainedFile(before), TrainedFile(after)
    assert (new.sizes, new.vocabulary, new.merges) == (old.sizes, old.vocabulary, old.merges)
    assert read_header(after).metadata["general.name"] == "tuned"
    changed = new.weights["embedding.weight"] - old.weights["embedding.weight"]
    assert abs(changed).max() > 1e-3
