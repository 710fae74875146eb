"""The prompts of `localspec train`: of files, of conversations, or those that come along."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from localspec.bench.prompt_sets import TERMINAL, Task, default_sets, read_tasks
from localspec.cli.chats import CHATS, no_conversations, opened_archive
from localspec.conversion.token_counts import texts_in
from localspec.distillation.prompt_set import general_prompts, terminal_prompts
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.llama.chat_template import Message

_OPTION = "--from"
# Letters of a passage that is continued, and the most passages of one source.
_PASSAGE, _PASSAGES = 600, 4000


def prompts_from(sources: Sequence[str], target: Path) -> Callable[[Engine], Sequence[Prompt]]:
    """Return what makes the prompts for a loaded target.

    Raises InvalidValueError for a source that cannot be read.
    """
    tasks = [each for source in sources for each in _tasks(source)] or _coming_along(target)
    return lambda engine: [task.prompt_for(engine) for task in tasks]


def _coming_along(target: Path) -> list[Task]:
    terminal = default_sets(target) == [TERMINAL]
    prompts = terminal_prompts() if terminal else general_prompts()
    return _numbered("own", [_asked(prompt) for prompt in prompts])


def _tasks(source: str) -> list[Task]:
    if source == CHATS:
        if not (asked := list(_conversations())):
            raise no_conversations(_OPTION)
        return _numbered(CHATS, asked)
    path = Path(source)
    if path.suffix == ".jsonl" and not path.is_dir():
        return read_tasks(path, _OPTION)
    texts = [each for text in texts_in(path, _OPTION) for each in _passages(text)]
    if not texts:
        raise InvalidValueError(f"{_OPTION} {source}: there is no text in it; name another file")
    step = max(1, len(texts) // _PASSAGES)
    return _numbered(path.stem, texts[::step])


def _numbered(name: str, contents: Sequence[str | tuple[Message, ...]]) -> list[Task]:
    return [Task(name, number, content) for number, content in enumerate(contents, start=1)]


def _asked(prompt: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": prompt},)


def _passages(text: str) -> Iterator[str]:
    """The paragraphs of a text, short ones joined, long ones in pieces; the target continues each.

    A lone CR ends a line, as in old files.
    """
    passage = ""
    for paragraph in text.replace("\r", "\n").split("\n\n"):
        passage = f"{passage}\n\n{paragraph.rstrip()}" if passage else paragraph.strip("\n")
        *whole, passage = _pieces(passage)
        yield from filter(None, whole)
    if passage.strip():
        yield passage.rstrip()


def _pieces(passage: str) -> Iterator[str]:
    """A text in pieces of at most _PASSAGE letters, cut at a line or else a space if there is one.

    The target goes on in the middle of what is there. The last piece is shorter, or empty.
    """
    start = 0
    while len(passage) - start >= _PASSAGE:
        end = start + _PASSAGE
        cuts = (passage.rfind(each, start + _PASSAGE // 2, end) for each in "\n ")
        cut = next((each + 1 for each in cuts if each >= 0), end)
        yield passage[start:cut].rstrip()
        start = cut
    yield passage[start:]


def _conversations() -> Iterator[tuple[Message, ...]]:
    """What the user said in each conversation, with all that came before."""
    with opened_archive() as archive:
        for each in archive.list():
            session = archive.open(each.key)
            start = [{"role": "system", "content": session.system}] if session.system else []
            messages: list[Message] = [*start]
            for turn in session.conversation.turns:
                if turn.media:
                    break  # what follows is said of an image
                messages.append({"role": turn.role, "content": turn.content})
                if turn.role == "user" and turn.content:
                    yield tuple(messages)
