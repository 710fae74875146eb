"""AnswerWriter: collects an answer's tokens and splits their text into reasoning and answer."""

from typing import Protocol

from localspec.conversation.reasoning import Split, Splitter, Tags
from localspec.conversation.thinking_budget import ThinkingBudget
from localspec.conversation.turns import TokenizedText
from localspec.engine.detokenizer import Detokenizer


class Vocabulary(Protocol):
    """The part of a model that turns tokens into text."""

    def piece(self, token: int) -> bytes: ...

    def piece_text(self, token: int) -> str: ...

    def ends_generation(self, token: int) -> bool: ...


class AnswerWriter:
    """The tokens and the text of one answer, as generated so far.

    detokenizer: shared by all parts of the answer. tags: the tags around the model's reasoning.
    thinking: whether the prompt ended with an opening tag. budget: the most tokens of reasoning;
    None: no limit.

    tokens: the answer's token ids, without the token that ended it. raw: the whole text, reasoning
    and tags included.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        detokenizer: Detokenizer,
        tags: Tags,
        *,
        thinking: bool,
        budget: int | None = None,
    ) -> None:
        self.detokenizer = detokenizer
        self.tokens: list[int] = []
        self.raw = ""
        self._vocabulary = vocabulary
        self._tags = tags
        self._splitter = Splitter(tags, thinking=thinking)
        self.budget = ThinkingBudget(budget, self._splitter, detokenizer)

    @property
    def is_thinking(self) -> bool:
        """Whether the next token belongs to the reasoning."""
        return self._splitter.thinking

    def add(self, token: int, text: str) -> Split:
        """Add a token and the text that the detokenizer gave for it; returns the new text."""
        if not self._vocabulary.ends_generation(token):
            self.tokens.append(token)
        self.budget.count()
        # A tag may be a control token, for which the detokenizer gives no text.
        tag = "" if text else self._vocabulary.piece_text(token)
        return self._split(tag if tag in self._tags else text)

    def close_thought(self, tokens: list[int], text: str) -> Split:
        """Add a closing tag that the model did not write; returns the new text."""
        self.tokens += tokens
        held = self._split(self.detokenizer.flush())
        closed = self._split(text)
        return Split(held.thought + closed.thought, held.said + closed.said)

    def end(self) -> Split:
        """End the answer; returns the text that was held back."""
        held = self._split(self.detokenizer.flush())
        rest = self._splitter.flush()
        return Split(held.thought + rest.thought, held.said + rest.said)

    @property
    def written(self) -> TokenizedText:
        """The tokens whose text is part of the answer, without those of a stop string."""
        if not self.detokenizer.stopped:
            return TokenizedText(self.raw, tuple(self.tokens))
        detokenizer, text = Detokenizer(), ""
        for count, token in enumerate(self.tokens):
            more = text + detokenizer.push(self._vocabulary.piece(token))
            if not self.raw.startswith(more):
                return TokenizedText(text, tuple(self.tokens[:count]))
            text = more
        return TokenizedText(text, tuple(self.tokens))

    def _split(self, text: str) -> Split:
        self.raw += text
        return self._splitter.push(text)
