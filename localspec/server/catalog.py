"""Catalog: the models that a server has, of which one is loaded at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import InvalidValueError
from localspec.gguf.lora import LoraFile
from localspec.server.embedding_model import EmbeddingModel
from localspec.server.errors import ApiError
from localspec.server.metrics import Metrics
from localspec.server.service import Service
from localspec.server.text_log import ToldOnce

# Names that mean the model that is loaded, whichever that is.
_ANY = ("localspec", "default")
# How Ollama's clients call a model that has no other tag; they take names apart there.
TAG = ":latest"
# What clients ask for, and a model that gives it.
_EMBEDDING = "embeddings", "nomic-ai/nomic-embed-text-v1.5-GGUF:q8_0"
_RANKING = "rankings", "gpustack/bge-reranker-v2-m3-GGUF:q8_0"


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A model that a server has.

    names: what clients may call it; the first is listed. path: its GGUF. load: loads it, and takes
    its time. context: the most tokens that it gets; None: as many as it was made for. mmproj: as
    `load` takes it.
    """

    names: Sequence[str]
    path: Path
    load: Callable[[], Service]
    context: int | None = None
    mmproj: str | None = None

    @property
    def name(self) -> str:
        """Its name in lists."""
        return self.names[0]


AnyModel = ServedModel | EmbeddingModel


class Catalog:
    """The models, and the one that is loaded.

    models: the first is loaded first. loaded: the one that is, with its service; None while none
    is. usual: that one, or the one that was loaded at last. contexts: of those that were loaded, in
    tokens. adapters: of the one that was loaded at last. embedders: those beside them. metrics,
    told: of all texts, whichever model wrote them. created: when, in seconds.

    Raises InvalidValueError where two models have one name in lists.
    """

    def __init__(
        self, models: Sequence[ServedModel], embedders: Sequence[EmbeddingModel] = ()
    ) -> None:
        self.models, self.embedders = models, embedders
        self.loaded: tuple[ServedModel, Service] | None = None
        self.usual = models[0]
        self.contexts: dict[ServedModel, int] = {}
        self.adapters: Sequence[LoraFile] = ()
        self.metrics, self.told = Metrics(), ToldOnce()
        self.created = int(time.time())
        self._named: dict[str, AnyModel] = {}
        for embedder in embedders:
            embedder.metrics = self.metrics
        for each in self.every:
            if self._named.setdefault(each.name, each) is not each:
                raise InvalidValueError(
                    f"two of the models are called {each.name}; name each once, or link a file "
                    "under another name"
                )
        for each in self.every:
            for name in each.names[1:]:
                self._named.setdefault(name, each)

    @property
    def service(self) -> Service | None:
        """The service of the model that is loaded."""
        return self.loaded and self.loaded[1]

    def service_of(self, model: AnyModel) -> Service | None:
        """The service of a model, if it is loaded."""
        return self.service if self.loaded and self.loaded[0] is model else None

    def enter(self, model: ServedModel, service: Service) -> None:
        """Note that a model is loaded."""
        service.metrics, service.told = self.metrics, self.told
        self.contexts[model] = service.engine.context
        self.adapters = service.adapters
        self.loaded, self.usual = (model, service), model

    def present(self, name: str | None) -> ServedModel:
        """The model that a name means just now. Raises ApiError (404)."""
        return self.find(name) or self.usual

    def find(self, name: str | None) -> ServedModel | None:
        """The model of this name; None for a name that means any of them. Raises ApiError."""
        found = self.called(name)
        if isinstance(found, EmbeddingModel):
            wanted = _asking(self.models)
            raise ApiError(400, f"{found.name} writes no text; {wanted}", param="model")
        return found

    def embedder(self, name: str | None, *, ranks: bool) -> EmbeddingModel:
        """The embedding model that a name means, or one that ranks. Raises ApiError."""
        what, example = _RANKING if ranks else _EMBEDDING
        fitting = [each for each in self.embedders if each.ranks == ranks]
        if not fitting:
            raise ApiError(
                501,
                f"no model for {what} here; start the server with --embed MODEL, such as {example}",
            )
        found = self.called(name) or fitting[0]
        if isinstance(found, EmbeddingModel) and found.ranks == ranks:
            return found
        raise ApiError(400, f"{found.name} gives no {what}; {_asking(fitting)}", param="model")

    @property
    def every(self) -> Sequence[AnyModel]:
        """All models, those for vectors behind those that write text."""
        return [*self.models, *self.embedders]

    def shown(self, name: str | None) -> AnyModel:
        """The model that a name means in lists. Raises ApiError (404)."""
        return self.called(name) or self.usual

    def called(self, name: str | None) -> AnyModel | None:
        """The model of this name, whatever it does; None as of `find`. Raises ApiError (404)."""
        plain = (name or "").removesuffix(TAG)
        if not plain or plain in _ANY:
            return None
        if found := self._named.get(plain):
            return found
        # A client may have a name of its own.
        also = f", or start the server with --alias {plain:.80}" if len(self.models) == 1 else ""
        raise ApiError(
            404,
            f"the model {name:.80} is not served here; {_asking(self.every)}{also}",
            param="model",
            code="model_not_found",
        )


def _asking(models: Sequence[AnyModel]) -> str:
    return f"ask for {' or '.join(each.name for each in models)}"
