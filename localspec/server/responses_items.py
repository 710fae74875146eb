"""The items that were sent to /v1/responses, as its clients list them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.datastructures import QueryParams

from localspec.engine.media_marks import marks_as_base64, media_mark
from localspec.engine.media_parts import contents, is_media
from localspec.errors import InvalidValueError
from localspec.server.errors import JSON, ApiError
from localspec.server.responses_request import ResponsesRequest

_USUAL, _MOST = 20, 100
# What `include` names the images of messages, which are not listed without it.
_IMAGES = "message.input_image.image_url"
# No shorter text is a file; a mark takes about as much.
_LONG = 128


def given_items(request: ResponsesRequest, response: str) -> list[JSON]:
    """The items of `input`, each with an id and a type, and marks in place of files.

    What comes with each turn is kept once. response: the id of the answer.
    """
    given = request.body.values["input"]
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [
        {
            "id": f"{item.get('type') or 'msg'}_{response}_{at}",
            **_with_marks(_as_item(item), request.marks),
        }
        for at, item in enumerate(given)
    ]


def _as_item(item: Mapping[str, object]) -> JSON:
    content = item.get("content")
    if "role" not in item or not isinstance(content, str):
        return {"type": "message", **item}
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {"type": "message", **item, "content": [{"type": kind, "text": content}]}


def _with_marks(value: Any, marks: Mapping[str, str], *, in_file: bool = False) -> Any:
    """An item with marks in place of files. marks: of files that were read, by what came.

    in_file: whether the value is of a part that is an image or a sound.
    """
    if isinstance(value, Mapping):
        in_file = in_file or is_media(value)
        return {key: _with_marks(each, marks, in_file=in_file) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_marks(each, marks) for each in value]
    if in_file and isinstance(value, str) and len(value) > _LONG:
        head, comma, _ = value.rpartition(",")
        with suppress(InvalidValueError):
            return head + comma + (marks.get(value) or media_mark(contents(value, "file")))
    return value


def _with_files(value: Any, *, images: bool) -> Any:
    """An item with its files, as far as they are kept. images: whether to list those, too."""
    if isinstance(value, list):
        return [_with_files(each, images=images) for each in value]
    if not isinstance(value, Mapping):
        return marks_as_base64(value) if isinstance(value, str) else value
    if value.get("type") == "input_image" and not images:
        return {**value, "image_url": None}
    return {key: _with_files(each, images=images) for key, each in value.items()}


def item_page(items: Sequence[JSON], query: QueryParams) -> JSON:
    """A part of a list of items, the last first unless another order is asked for.

    query: `order`, `limit`, `after`, an id, and `include`. Raises ApiError.
    """
    asked = {*query.getlist("include"), *query.getlist("include[]")}
    order, limit, after = (query.get(name) for name in ("order", "limit", "after"))
    if order not in (None, "asc", "desc"):
        raise ApiError(400, f"order is {order:.40}; it must be asc or desc", param="order")
    if limit is not None and limit not in map(str, range(1, _MOST + 1)):
        raise ApiError(400, f"limit is {limit:.40}; it must be 1 to {_MOST}", param="limit")
    found = [*items] if order == "asc" else [*items][::-1]
    ids = [item["id"] for item in found]
    if after is not None:
        if after not in ids:
            raise ApiError(404, f"there is no item {after:.80} in this list", param="after")
        found = found[len(ids) - ids[::-1].index(after) :]  # clients may send an id twice
    page = found[: int(limit or _USUAL)]
    page = [_with_files(item, images=_IMAGES in asked) for item in page]
    ends = [page[end]["id"] if page else None for end in (0, -1)]
    more = len(found) > len(page)
    return {
        "object": "list",
        "data": page,
        "first_id": ends[0],
        "last_id": ends[1],
        "has_more": more,
    }
