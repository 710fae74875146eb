"""Media marks: what stands in a text for an image or a sound until the text is tokenized.

Chat templates write texts. So an image is written as a mark, and becomes its rows where the rest
becomes tokens. Nobody can write a mark but this process: it has a secret.
"""

import re
from base64 import b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from localspec.errors import InvalidValueError
from localspec.utils.media_file import is_sound
from localspec.utils.option_names import option

if TYPE_CHECKING:  # the process that only watches a server needs no library
    from localspec.llama.model import Model

_SECRET = token_hex(8)
_MARK = re.compile(rf"<\|media {_SECRET} ([0-9a-f]{{64}})\|>")
_MARK_OR_PIECE = re.compile(rf"{_MARK.pattern}|(?:<\|media )?{_SECRET}(?: ([0-9a-f]*)\|?)?")
# The bytes of files that are kept for marks; those that were used last stay.
_MOST_BYTES = 512 * 2**20
_files: OrderedDict[str, bytes] = OrderedDict()
_lock = Lock()
LEAVES_OUT = "the chat template of {} leaves out images of earlier messages or of tools"
NEED_PROJECTOR = "images and sounds need the model's mmproj file beside it"
Tokenize = Callable[[str], list[int]]
_File = TypeVar("_File")


def media_mark(data: bytes) -> str:
    """The mark of an image or a sound, as long as its file is kept. data: the file's contents."""
    return mark_of(sha256(data).hexdigest(), data)


def mark_of(key: str, data: bytes) -> str:
    """The mark of a file whose digest is known."""
    with _lock:
        _files[key] = data
        _files.move_to_end(key)
        while len(_files) > 1 and sum(map(len, _files.values())) > _MOST_BYTES:
            _files.popitem(last=False)
    return f"<|media {_SECRET} {key}|>"


def as_lines(parts: Iterable[str | _File]) -> Iterator[str | _File]:
    """The parts of a content as its lines; an image is no line of its own, as models know it.

    parts: texts, and images and sounds, which are marks, or no texts at all.
    """
    follows = True
    for part in parts:
        is_text = isinstance(part, str) and not _MARK.fullmatch(part)
        yield part if follows or not is_text else f"\n{part}"
        follows = not is_text


def join_parts(parts: Iterable[str]) -> str:
    """The parts of a content as one text, as of `as_lines`."""
    return "".join(as_lines(parts))


def media_tokens(text: str, model: "Model", first: Tokenize, rest: Tokenize) -> list[int]:
    """The tokens of a text with marks. first: tokenizes its beginning. rest: what follows an image.

    Raises InvalidValueError where the model reads no such file.
    """
    words, *others = _MARK.split(text)
    if not others:
        return first(text)
    tokens = first(words)
    for key, words in zip(others[::2], others[1::2], strict=True):
        tokens += read_media(_file(key), model)
        tokens += rest(words) if words else []
    return tokens


def read_media(data: bytes, model: "Model") -> list[int]:
    """The tokens of an image or a sound. Raises InvalidValueError where the model reads none."""
    if model.projector is None:
        raise InvalidValueError(no_projector(model))
    return model.projector.tokens(data)


def reads(model: "Model", data: bytes) -> bool:
    """Whether a model reads files of this kind, which is an image or a sound."""
    reader = model.projector
    return reader is not None and (reader.reads_sounds if is_sound(data) else reader.reads_images)


def only_for_chats(model: "Model") -> str:
    """What to do where a model reads raw texts."""
    return (
        f"images and sounds are for chats, and {model.path.name} continues a text; "
        f"{option('chat_template')} gives it a chat template"
    )


def no_projector(model: "Model") -> str:
    """What to do for a model that reads texts only."""
    why = model.no_projector or (
        "there is no mmproj file beside it; if one was made for it, name it with "
        f"{option('mmproj')}"
    )
    return f"{model.path.name} reads texts only: {why}"


def without_marks(text: str) -> str:
    """A text with words in place of marks, for people."""
    return _MARK.sub("[image]", text)


def without_pieces(text: str, messages: Iterable[Mapping[str, Any]]) -> str:
    """A text without what a chat template has left of the messages' marks: nobody can read that."""
    if _SECRET not in text:
        return text
    keys = _marks(messages)

    def words(found: re.Match[str]) -> str:
        if found[1]:
            return found[0]
        # What follows a piece may look like more of it.
        rest = found[2] or ""
        ends = range(len(rest), 0, -1)
        return rest[next((n for n in ends if any(key.startswith(rest[:n]) for key in keys)), 0) :]

    return _MARK_OR_PIECE.sub(words, text)


def require_written(text: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Raise InvalidValueError where a chat template left out an image that the user has just sent.

    Return whether it left out others. What comes behind the results of tools is of those tools.
    """
    said = [each for each in messages if each.get("role") in ("user", "assistant", "tool")]
    written = Counter(_MARK.findall(text))
    is_sent = said and said[-1]["role"] == "user" and said[-2:][0]["role"] != "tool"
    if is_sent and not _marks(said[-1:]) <= written:
        raise InvalidValueError(
            "the model's chat template leaves out an image of the message; try another template "
            f"({option('chat_template')})"
        )
    return not _marks(messages) <= written


def _marks(messages: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How often each file stands in messages."""
    return Counter(key for each in messages for key in _MARK.findall(str(each.get("content"))))


@contextmanager
def told_without_marks() -> Iterator[None]:
    """Let what a template says of the messages that it refuses have words in place of marks."""
    try:
        yield
    except InvalidValueError as error:
        error.args = (without_marks(str(error)),)
        raise


def marks_as_base64(text: str) -> str:
    """A text with files in place of marks; empty where one is not kept any more."""
    words, *others = _MARK.split(text)
    for key, following in zip(others[::2], others[1::2], strict=True):
        if (data := _kept(key)) is None:
            return ""
        words += b64encode(data).decode() + following
    return words


def _kept(key: str) -> bytes | None:
    with _lock:
        data = _files.get(key)
        if data is not None:
            _files.move_to_end(key)
    return data


def _file(key: str) -> bytes:
    data = _kept(key)
    if data is None:
        raise InvalidValueError(
            f"an image was sent too long ago, and more than {_MOST_BYTES // 2**20} MiB of others "
            "since; send it again"
        )
    return data
