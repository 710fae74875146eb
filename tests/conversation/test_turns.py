"""Turns and conversations by themselves, and when an answer can go on."""

from datetime import datetime

from localspec.conversation.turns import Conversation, TokenizedText, Turn
from localspec.conversation.unfinished import is_unfinished


def test_variants_are_counted_among_answers() -> None:
    question = Turn("user", "a")
    conversation = Conversation([question, Turn("user", "b")])
    assert question.next_variant == 0
    for number in range(3):
        conversation.back_to(question)
        conversation.add(Turn("assistant", str(number), variant=question.next_variant))
    assert question.next_variant == 3
    conversation.remove(question.after[2])
    assert question.next_variant == 3  # a number is not used again
    assert [turn.content for turn in conversation.variants(question.after[1])] == ["b", "0", "2"]


def test_a_copy_of_a_branch_has_turns_of_its_own() -> None:
    began = datetime(2001, 2, 3)
    conversation = Conversation([Turn("user", "a"), Turn("assistant", "b")], began=began)
    copy = conversation.copy_branch()
    assert copy.began == began and len(copy.turns) == 2
    copy.add(Turn("user", "c"))
    assert len(conversation.turns) == 2 and conversation.turns[1].after == []
    assert {turn.key for turn in copy.turns}.isdisjoint(turn.key for turn in conversation.turns)
    assert conversation.turns[0].copy().after == []


def test_everything_comes_after_what_it_follows() -> None:
    conversation = Conversation([Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c")])
    conversation.back_to(None)
    conversation.add(Turn("user", "d"))
    assert [turn.content for turn in conversation.everything()] == ["a", "b", "c", "d"]


def test_an_answer_that_could_go_on() -> None:
    written = TokenizedText("b", (1,))
    turn = Turn("assistant", "b", written=written, stop_reason="length")
    conversation = Conversation([Turn("user", "a"), turn])
    assert is_unfinished(turn)
    assert not is_unfinished(Turn("assistant", "b", stop_reason="length"))
    assert not is_unfinished(Turn("assistant", "b", written=written, stop_reason="eos"))
    assert not is_unfinished(Turn("user", "b", written=written, stop_reason="length"))
    conversation.add(Turn("user", "c"))
    assert not is_unfinished(turn)
