"""Writing: an answer in the making, from tokens to what is thought and said."""

from typing import Protocol

from localspec.conversation.reasoning import Split, Splitter, Tags
from localspec.conversation.turns import Written
from localspec.engine.detokenizer import Detokenizer


class Vocabulary(Protocol):
    """What of a model is needed."""

    def piece(self, token: int) -> bytes: ...

    def piece_text(self, token: int) -> str: ...

    def ends_generation(self, token: int) -> bool: ...


class Writing:
    """What has been written so far.

    stream: makes text of tokens, for all parts of the answer. tags: of thoughts; thinking: whether
    the prompt opened one. tokens: without the one that ends the text. raw: the text, thoughts and
    tags included. thought_tokens: how many were thought.
    """

    def __init__(
        self, vocabulary: Vocabulary, stream: Detokenizer, tags: Tags, *, thinking: bool
    ) -> None:
        self.stream = stream
        self.tokens: list[int] = []
        self.raw = ""
        self.thought_tokens = 0
        self._vocabulary = vocabulary
        self._tags = tags
        self._splitter = Splitter(tags, thinking=thinking)

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open."""
        return self._splitter.thinking

    def add(self, token: int, text: str) -> Split:
        """A token came; text: what became certain with it."""
        if not self._vocabulary.ends_generation(token):
            self.tokens.append(token)
        self.thought_tokens += self.is_thinking
        # A tag may be a control token, which is no text otherwise.
        tag = "" if text else self._vocabulary.piece_text(token)
        return self._take(tag if tag in self._tags else text)

    def close_thought(self, tokens: list[int], text: str) -> Split:
        """Write the end of a thought for the model."""
        self.tokens += tokens
        held = self._take(self.stream.flush())
        closed = self._take(text)
        return Split(held.thought + closed.thought, held.said + closed.said)

    def end(self) -> Split:
        """What was held back, now that nothing follows."""
        held = self._take(self.stream.flush())
        rest = self._splitter.flush()
        return Split(held.thought + rest.thought, held.said + rest.said)

    @property
    def written(self) -> Written:
        """As much as the tokens spell: a stop string is no part of the text."""
        if not self.stream.stopped:
            return Written(self.raw, tuple(self.tokens))
        stream, text = Detokenizer(), ""
        for count, token in enumerate(self.tokens):
            more = text + stream.push(self._vocabulary.piece(token))
            if not self.raw.startswith(more):
                return Written(text, tuple(self.tokens[:count]))
            text = more
        return Written(text, tuple(self.tokens))

    def _take(self, text: str) -> Split:
        self.raw += text
        return self._splitter.push(text)
