"""The items that were sent to /v1/responses, as its clients list them."""

from collections.abc import Mapping, Sequence

from localspec.server.errors import JSON, ApiError
from localspec.server.fields import Fields

_USUAL, _MOST = 20, 100


def given_items(body: Fields, response: str) -> list[JSON]:
    """The items of `input`, each with an id and a type. response: the id of the answer."""
    given = body.values["input"]
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [
        {"id": f"{item.get('type') or 'msg'}_{response}_{at}", **_as_item(item)}
        for at, item in enumerate(given)
    ]


def _as_item(item: Mapping[str, object]) -> JSON:
    content = item.get("content")
    if "role" not in item or not isinstance(content, str):
        return {"type": "message", **item}
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {"type": "message", **item, "content": [{"type": kind, "text": content}]}


def item_page(items: Sequence[JSON], query: Mapping[str, str]) -> JSON:
    """A part of a list of items, the last first unless another order is asked for.

    query: `order`, `limit` and `after`, an id. Raises ApiError.
    """
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
    ends = [page[end]["id"] if page else None for end in (0, -1)]
    more = len(found) > len(page)
    return {
        "object": "list",
        "data": page,
        "first_id": ends[0],
        "last_id": ends[1],
        "has_more": more,
    }
