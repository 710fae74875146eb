"""Reranking: which documents fit a query best, as Jina, Cohere, TEI and llama-server are asked."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from localspec.engine.prompt import text_tokens
from localspec.llama.embedder import Embedder
from localspec.server.embeddings import fitting, require_few, require_short
from localspec.server.errors import JSON
from localspec.server.exchange import JsonAnswer, body_of, catalog_of, unless_gone
from localspec.server.fields import Fields
from localspec.server.known_members import unused_members

# Options of other servers that would change a ranking, and what they are where they do not.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "instruct": (),
    "instruction": (),
    "max_chunks_per_doc": (),
    "max_tokens_per_doc": (),
    "rank_fields": (["text"],),
    "raw_scores": (True,),
    "return_embeddings": (False,),
    "top_k": (),
    "truncate": (False, "NONE"),
    "truncate_prompt_tokens": (),
    "truncation": (False,),
}


def routes() -> list[Route]:
    """The paths, for an app whose state has the catalog."""
    paths = ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking")
    return [Route(path, _rerank, methods=["POST"]) for path in paths]


async def _rerank(request: Request) -> Response:
    body = await body_of(request)
    model = catalog_of(request).embedder(body.text("model"), ranks=True)
    # TEI calls documents texts, and wants a list of scores.
    is_tei = "texts" in body
    name = "texts" if is_tei else "documents"
    documents = _documents(body, name)
    body.needed("query")
    query, most = body.text("query") or "", body.whole("top_n", 1)
    body.refuse(_NOT_HERE)
    catalog_of(request).told.log(unused_members(body, "reranking"))
    shown = body.flag("return_text" if is_tei else "return_documents")

    def tokens_of(embedder: Embedder, at: int) -> list[int]:
        place = f"{name}[{at}]"
        require_short(len(query) + len(documents[at]), embedder, place)
        tokens = text_tokens(documents[at], lambda text: embedder.pair(query, text))
        return fitting(tokens, embedder, place)

    found = await unless_gone(request, model.embed(range(len(documents)), tokens_of))
    scores = found.vectors[:, 0].tolist()

    def result(at: int) -> JSON:
        text: JSON = {"text": documents[at]} if shown else {}
        if is_tei:
            return {"index": at, "score": scores[at], **text}
        return {"index": at, "relevance_score": scores[at], **({"document": text} if shown else {})}

    best = sorted(range(len(scores)), key=lambda at: -scores[at])[:most]
    results: Any = [result(at) for at in best]
    if is_tei:
        return JsonAnswer(results)
    usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
    return JsonAnswer({"object": "list", "model": model.name, "usage": usage, "results": results})


def _documents(body: Fields, name: str) -> list[str]:
    """The documents: texts, or objects with one. Raises ApiError."""
    values = body.items(name)
    if not values:
        raise body.wrong(name, "a list of texts")
    require_few(body, name, len(values))
    texts = [each.get("text") if isinstance(each, dict) else each for each in values]
    found = [each for each in texts if isinstance(each, str)]
    if len(found) < len(texts):
        raise body.wrong(name, 'a list of texts, or of objects with a "text"')
    return found
