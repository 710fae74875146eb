"""Answer edits: the user's own text in place of an answer, from which the model goes on."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from localspec.conversation.answer_settings import config_of
from localspec.conversation.reasoning import Splitter, Tags, opens_thinking, tags_for
from localspec.conversation.transcript import Transcript
from localspec.conversation.turns import EMPTY, Conversation, TokenizedText, Turn
from localspec.conversation.unfinished import EDITED
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.engine import Engine
from localspec.engine.prompt import text_tokens
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationOptions
from localspec.llama.model import Model


class AnswerEdits(ABC):
    """The part of a session that edits answers."""

    conversation: Conversation
    engine: Engine
    system: str | None
    thinking_budget: int | None
    _options: GenerationOptions

    @property
    @abstractmethod
    def turns(self) -> list[Turn]:
        """The present branch of the conversation."""

    @property
    @abstractmethod
    def _transcript(self) -> Transcript:
        """The transcript for the engine's present model."""

    @abstractmethod
    def _end_answer(self) -> None:
        """End the running answer."""

    def edit_answer(self, number: int, text: str) -> Turn:
        """Put a text beside the answer with this number in `turns`, from 0, as another variant.

        The variant is now the last turn: `continue_answer` goes on from the end of its text, and a
        message may follow it as it is. The text is kept character for character. The reasoning
        before the answer stays; one that had not ended is ended. Nothing is evaluated yet. The old
        answer and all turns after it stay as another branch.

        Raises InvalidValueError, and leaves the conversation as it was, if the text is empty, is
        not valid Unicode, would open reasoning, or the turn is no answer to anything.
        """
        self._end_answer()
        turns = self.turns
        if not 0 <= number < len(turns):
            raise InvalidValueError(f"there is no turn {number}; there are {len(turns)}, from 0 on")
        turn = turns[number]
        if turn.role != "assistant" or turn.before is None:
            raise InvalidValueError(f"turn {number} is not an answer to a message; edit an answer")
        if not text.strip():
            raise InvalidValueError("the answer is empty; write some text, or regenerate it")
        # The lock keeps the model loaded.
        with self.engine.lock:
            edited = self._edited(turn, text, turns[:number])
        self.conversation.back_to(turn.before)
        return self.conversation.add(edited)

    def _edited(self, turn: Turn, text: str, before: Sequence[Turn]) -> Turn:
        """A variant of an answer with another text, behind the prompt of now."""
        transcript, variant = self._transcript, before[-1].next_variant
        model, tags = transcript.model, tags_for(transcript.template)
        prompt = transcript.prompt(self.system, before).text
        thinking = bool(transcript.template) and opens_thinking(prompt, tags)
        fits = turn.vocabulary == model.vocabulary_fingerprint and turn.thinking == thinking
        reasoning = _reasoning(turn, tags, thinking=thinking, is_known=fits and bool(turn.raw))
        tokens = _reasoning_tokens(reasoning, turn.written if fits else EMPTY, model, tags)
        # What the user writes is text, whatever control tokens are called.
        tokens += text_tokens(text, lambda plain: model.spell_after(plain, parse_special=False))
        splitter = Splitter(tags, thinking=thinking)
        before_text = splitter.push(reasoning).thought
        if splitter.push(text).thought or splitter.flush().thought:
            raise InvalidValueError(
                f"the answer begins with {tags.opening!r}, and would be read as reasoning; "
                "begin it with another word"
            )
        return Turn(
            "assistant",
            text,
            before_text,
            raw=reasoning + text,
            written=TokenizedText(reasoning + text, tuple(tokens)),
            vocabulary=model.vocabulary_fingerprint,
            stop_reason=EDITED,
            # With the seed of the answer before, a text that was only cut would end as it did.
            seed=(config_of(self._options).seed + variant) % 2**64,
            thinking=thinking,
            switch=transcript.switch,
            template=transcript.template_fingerprint,
            thinking_budget=self.thinking_budget,
            edited=len(tokens),
            variant=variant,
        )


def _reasoning(turn: Turn, tags: Tags, *, thinking: bool, is_known: bool) -> str:
    """What stands before the answer in the text of a turn: ended reasoning, or nothing.

    thinking: whether the prompt opens it. is_known: whether `raw` is the text behind such a prompt.
    """
    if is_known:
        splitter = Splitter(tags, thinking=thinking)
        splitter.push(turn.raw)
        if splitter.thinking:
            return turn.raw + tags.ending
        if turn.raw.endswith(turn.content):
            return turn.raw.removesuffix(turn.content)
    if not (turn.thought or thinking):
        return ""
    opening = "" if thinking else f"{tags.opening}\n"
    return f"{opening}{turn.thought}{tags.ending}"


def _reasoning_tokens(
    reasoning: str, written: TokenizedText, model: Model, tags: Tags
) -> list[int]:
    """The tokens of reasoning: those that it was generated with, as far as whole ones spell it."""
    detokenizer, kept, text = Detokenizer(), list[int](), ""
    for token in written.tokens:
        if text == reasoning:
            break
        # A tag may be a control token.
        tag = model.piece_text(token)
        text += detokenizer.push(model.piece(token)) or (tag if tag in tags else "")
        kept.append(token)
    text += detokenizer.flush()
    if not reasoning.startswith(text):
        kept, text = [], ""
    rest = reasoning.removeprefix(text)
    return [*kept, *text_tokens(rest, model.spell_after)]
