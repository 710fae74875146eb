"""ContentReader: contents of messages as texts, with marks in the place of images and sounds.

A conversation comes again with every turn. So what the model does not read, and files that nobody
can read, are refused only where the user has just sent them; elsewhere the model is told that
something was left out.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from localspec.engine.chat_messages import is_text
from localspec.engine.media_marks import NEED_PROJECTOR, join_parts, media_mark
from localspec.engine.media_parts import contents, held_by, is_media
from localspec.errors import InvalidValueError, ModelLoadError, OutOfMemoryError
from localspec.llama.model import MediaReader
from localspec.server.errors import ApiError
from localspec.server.fields import Fields

log = logging.getLogger("localspec.server")

_RESULTS = ("tool", "function", "function_call_output", "custom_tool_call_output", "tool_result")
_SPEAKERS = ("user", "assistant", "function_call", "custom_tool_call", *_RESULTS)
_TEXT_ONLY = "this model reads text only"
_WAY_OUT = f"; {NEED_PROJECTOR}"
# The status where memory is too small now: the same request may be answered later.
_FOR_NOW = 503


class ContentReader:
    """Reads the contents of a conversation.

    messages: of any protocol, or items of a response. projector: reads images and sounds for the
    model; None: it reads text only. marks: those of the files that were read, by the texts that
    they came as.
    """

    def __init__(self, messages: Iterable[Fields], projector: MediaReader | None) -> None:
        self.marks: dict[str, str] = {}
        self._projector = projector
        self._just_sent = frozenset(_just_sent([*messages], whole=projector is not None))

    def text_of(self, given: Fields, name: str = "content") -> str:
        """A content: a text, or parts. Raises ApiError."""
        value = given.values.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        return join_parts(map(self.part, given.objects(name)))

    def with_images(self, text: str, given: Fields) -> str:
        """A text behind the images of its message, as Ollama has them. Raises ApiError."""
        images = map(self._image, given.items("images") or (), _places(given))
        return join_parts([*images, text])

    def part(self, part: Fields) -> str:
        """A part of a content: its text, its mark, or words in its place. Raises ApiError."""
        if is_text(part.values):
            return part.text("text") or part.text("refusal") or ""
        kind = part.text("type") or "a part"
        if not is_media(part.values) or not self._reads(sound="audio" in kind):
            way_out = "" if self._projector or not is_media(part.values) else _WAY_OUT
            others = " or an image" * self._reads() + " or a sound" * self._reads(sound=True)
            refusal = part.wrong("type", f"text{others}; this model reads nothing else{way_out}")
            return self._left_out(kind, part.path, refusal, "this model does not read it")
        value, where = held_by(part.values, part.path)
        return self._mark(kind, part.path, value, partial(_file, part, value, where))

    def _image(self, value: object, place: str) -> str:
        return self._mark("image", place, value, partial(contents, value, place))

    def _mark(self, kind: str, place: str, value: object, read: Callable[[], bytes]) -> str:
        """The mark of a file, or words in its place. value: as it came. Raises ApiError."""
        known = value if isinstance(value, str) else ""
        try:
            if known not in self.marks:
                self.marks[known] = file_mark(read, place, self._projector)
            return self.marks[known]
        except ApiError as error:
            if error.status == _FOR_NOW:
                raise
            words = self._left_out(kind, place, error, "it cannot be read")
            log.warning("left out of a conversation: %s", error)
            return words

    def _left_out(self, kind: str, place: str, refusal: ApiError, why: str) -> str:
        """The words in the place of a part; raises the refusal where it was just sent."""
        if place in self._just_sent:
            raise refusal
        return f"[{kind} left out: {why if self._projector else _TEXT_ONLY}]"

    def _reads(self, *, sound: bool = False) -> bool:
        """Whether the model reads images, or sounds."""
        reader = self._projector
        return bool(reader and (reader.reads_sounds if sound else reader.reads_images))


def file_mark(read: Callable[[], bytes], place: str, projector: MediaReader | None) -> str:
    """The mark of an image or a sound of a request.

    read: returns the file; it raises InvalidValueError. place: where the file stands. projector: as
    of a ContentReader. Raises ApiError where the model cannot read it.
    """
    try:
        if projector is None:
            raise InvalidValueError(f"{place} is given, and {_TEXT_ONLY}{_WAY_OUT}")
        data = read()
        projector.prepare(data)
    except InvalidValueError as error:
        told = str(error)
        told = told if told.startswith(place) else f"{place}: {told}"
        raise ApiError(400, told, param=place) from error
    except OutOfMemoryError as error:
        raise ApiError(_FOR_NOW, str(error), param=place) from error
    except ModelLoadError as error:
        raise ApiError(500, str(error), param=place) from error
    return media_mark(data)


def _file(part: Fields, value: object, where: str) -> bytes:
    """The contents of an image or a sound, which holds a value. Raises InvalidValueError."""
    source = part.values.get("source")
    for holder, place in ((part.values, part.path), (source, part.place("source"))):
        if isinstance(holder, Mapping) and holder.get("file_id") is not None:
            raise InvalidValueError(
                f"{place}.file_id is {holder['file_id']!r:.60}; no files are kept here: send the "
                "file itself, in base64"
            )
    return contents(value, where)


def _just_sent(messages: list[Fields], *, whole: bool) -> Iterator[str]:
    """The places of parts that the user has just sent. whole: all of the last message is new.

    What comes beside results of tools, as an agent sends the picture that a tool gave back, is not
    the user's.
    """
    said = [each for each in messages if _speaker(each) in _SPEAKERS]
    if not said or _speaker(said[-1]) != "user" or any(map(_has_results, said[-2:])):
        return
    last = said[-1]
    yield from _places(last)
    if not isinstance(last.values.get("content"), list):
        return
    parts = [*last.objects("content")]
    texts = [at for at, part in enumerate(parts) if is_text(part.values)]
    # A client may join a message that was refused, as images always are by a model that reads text
    # only, and the next one: then a text follows.
    again = texts[-1] if len(texts) > 1 and not whole else 0
    yield from (part.path for part in parts[again:])


def _places(message: Fields) -> list[str]:
    """The places of a message's images."""
    return [f"{message.place('images')}[{at}]" for at in range(len(message.items("images") or ()))]


def _speaker(message: Fields) -> str | None:
    return message.text("role") or message.text("type")


def _has_results(message: Fields) -> bool:
    """Whether a message gives back what tools returned."""
    if isinstance(message.values.get("content"), list):
        kinds = [part.text("type") for part in message.objects("content")]
    else:
        kinds = []
    return any(kind in _RESULTS for kind in (_speaker(message), *kinds))
