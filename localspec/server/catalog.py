"""Catalog: the models that a server has, of which one is loaded at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import InvalidValueError
from localspec.server.errors import ApiError
from localspec.server.metrics import Metrics
from localspec.server.service import Service

# Names that mean the model that is loaded, whichever that is.
_ANY = ("localspec", "default")
# How Ollama's clients call a model that has no other tag; they take names apart there.
TAG = ":latest"


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


class Catalog:
    """The models, and the one that is loaded.

    models: the first is loaded first. loaded: the one that is, with its service; None while none
    is. usual: that one, or the one that was loaded at last. contexts: of those that were loaded, in
    tokens. metrics: of all texts, whichever model wrote them. created: when, in seconds.

    Raises InvalidValueError where two models have one name in lists.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = models
        self.loaded: tuple[ServedModel, Service] | None = None
        self.usual = models[0]
        self.contexts: dict[ServedModel, int] = {}
        self.metrics = Metrics()
        self.created = int(time.time())
        self._named: dict[str, ServedModel] = {}
        for each in models:
            if self._named.setdefault(each.name, each) is not each:
                raise InvalidValueError(
                    f"two of the models are called {each.name}; name each once, or link a file "
                    "under another name"
                )
        for each in models:
            for name in each.names[1:]:
                self._named.setdefault(name, each)

    @property
    def service(self) -> Service | None:
        """The service of the model that is loaded."""
        return self.loaded and self.loaded[1]

    def service_of(self, model: ServedModel) -> Service | None:
        """The service of a model, if it is loaded."""
        return self.service if self.loaded and self.loaded[0] is model else None

    def enter(self, model: ServedModel, service: Service) -> None:
        """Note that a model is loaded."""
        service.metrics = self.metrics
        self.contexts[model] = service.engine.context
        self.loaded, self.usual = (model, service), model

    def present(self, name: str | None) -> ServedModel:
        """The model that a name means just now. Raises ApiError (404)."""
        return self.find(name) or self.usual

    def find(self, name: str | None) -> ServedModel | None:
        """The model of this name; None for a name that means any of them. Raises ApiError (404)."""
        plain = (name or "").removesuffix(TAG)
        if not plain or plain in _ANY:
            return None
        if found := self._named.get(plain):
            return found
        here = " or ".join(each.name for each in self.models)
        raise ApiError(
            404,
            f"the model {name:.80} is not served here; ask for {here}",
            param="model",
            code="model_not_found",
        )
