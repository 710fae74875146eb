"""Export: writes a conversation to a file, as Markdown or as JSON."""

import json
import os
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from localspec.conversation.turns import Conversation, Turn
from localspec.conversation.unfinished import EDITED
from localspec.errors import InvalidValueError
from localspec_tui.saved_session import SavedSession

_FORMAT = 1
# Why an answer is not complete, by its stop reason.
INCOMPLETE = {
    "cancelled": "stopped",
    "interrupted": "interrupted",
    "length": "cut off: the limit of tokens was reached",
    "context": "cut off: the context was full",
    None: "not finished yet",
}
_COMPLETE = ("eos", "stop")


def as_markdown(
    conversation: Conversation, title: str, model: str, *, system: str | None = None
) -> str:
    """The active branch as Markdown: a heading for each turn, and thoughts folded up."""
    parts = [f"# {title}", f"Model: {model}"]
    if system:
        parts += ["## System", _with_closed_fence(system)]
    for turn in conversation.turns:
        parts += _turn_parts(turn)
    return "\n\n".join(parts) + "\n"


def as_json(
    conversation: Conversation, title: str, model: str, *, system: str | None = None
) -> dict[str, Any]:
    """All branches as a JSON object.

    format: 1. title, model: text. system: the system prompt, or null. last: key of the last turn of
    the active branch, or null. turns: a list of objects; each turn comes after the turn before it,
    and variants are in the order in which they were said:

        key          identifies the turn
        before       key of the turn before it; null for a first turn
        role         system, user, assistant or tool
        content      the text of the turn
        thought      what the model thought before its answer; may be empty
        raw          an answer as it was generated, with thoughts and tags; else empty
        tokens       ids of the generated tokens; they spell raw or its beginning
        stop_reason  of an answer: eos, stop, length, context, cancelled, interrupted, edited if the
                     user wrote its end, or null while it is being written; of other turns null
        edited       how many of the tokens, from the first, are a text that the user has edited
        media        images and sounds, a list of objects: start and end of what stands for it in
                     content, the name of its file, and data, its contents in base64
    """
    last = conversation.last
    return {
        "format": _FORMAT,
        "title": title,
        "model": model,
        "system": system,
        "last": last.key if last else None,
        "turns": [_record(turn) for turn in conversation.everything()],
    }


def how_it_ended(turn: Turn) -> str:
    """That an answer was edited, and why it is not complete; empty for any other turn."""
    if turn.role != "assistant":
        return ""
    reason = turn.stop_reason
    how = "" if reason in (*_COMPLETE, EDITED) else INCOMPLETE.get(reason, reason or "")
    return "; ".join(filter(None, ("edited by the user" if turn.edited else "", how)))


def write_export(path: str | Path, text: str) -> Path:
    """Write a new file and return its absolute path. `~` is the user's home folder.

    Raises InvalidValueError if the file exists or cannot be written.
    """
    # Path.expanduser would raise RuntimeError for an unknown user.
    file = Path(os.path.expanduser(path)).absolute()
    stream = None
    try:
        stream = file.open("xb")
        with stream:
            stream.write(text.encode("utf-8", "replace"))
    except FileExistsError:
        what = "a folder; name a file in it" if file.is_dir() else "there already; name another"
        raise InvalidValueError(f"{file} is {what}") from None
    except OSError as error:
        if stream:
            # A part of it, on a full disk.
            with suppress(OSError):
                file.unlink()
        raise InvalidValueError(
            f"{file} cannot be written: {error.strerror}; name another place"
        ) from error
    return file


def export_session(session: SavedSession, path: str) -> str:
    """Write a session to a new file, and return a line that names it.

    A path that ends in .json gets all branches as JSON, any other the active branch as Markdown.
    Raises InvalidValueError if the file exists or cannot be written.
    """
    is_json = path.endswith(".json")
    has_media = not is_json and any(turn.media for turn in session.conversation.turns)
    note = "; it names images and sounds, and a .json file has them" if has_media else ""
    return f"written: {write_export(path, exported_text(session, is_json=is_json))}{note}"


def exported_text(session: SavedSession, *, is_json: bool = False) -> str:
    """Return the active branch of a session as Markdown, or all branches as JSON."""
    described = (session.conversation, session.title, session.model)
    if not is_json:
        return as_markdown(*described, system=session.system)
    record = as_json(*described, system=session.system)
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"


def _turn_parts(turn: Turn) -> Iterator[str]:
    yield f"## {turn.role.capitalize()}"
    if turn.thought:
        yield "<details>\n<summary>Thought</summary>"
        yield _with_closed_fence(turn.thought).replace("</details", "&lt;/details")
        yield "</details>"
    if turn.content:
        yield _with_closed_fence(turn.content)
    if how := how_it_ended(turn):
        yield f"*({how})*"


def _with_closed_fence(text: str) -> str:
    """Close the code fence that a text may end in, because the answer was stopped there."""
    text = text.strip("\n")
    last = MarkdownIt().parse(f"{text}\n\n# what follows")[-1]
    return f"{text}\n{last.markup}" if last.type == "fence" else text


def _record(turn: Turn) -> dict[str, Any]:
    return {
        "key": turn.key,
        "before": turn.before.key if turn.before else None,
        "role": turn.role,
        "content": turn.content,
        "thought": turn.thought,
        "raw": turn.raw,
        "tokens": list(turn.written.tokens),
        "stop_reason": turn.stop_reason,
        "edited": turn.edited,
        "media": [
            {
                "start": span.start,
                "end": span.end,
                "name": span.name,
                "data": b64encode(span.data).decode(),
            }
            for span in turn.media
        ],
    }
