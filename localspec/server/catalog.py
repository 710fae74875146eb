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
ANY = ("localspec", "default")


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A model that a server has.

    names: what clients may call it; the first is listed. path: its GGUF. load: loads it, and takes
    its time.
    """

    names: Sequence[str]
    path: Path
    load: Callable[[], Service]

    @property
    def name(self) -> str:
        """Its name in lists."""
        return self.names[0]


class Catalog:
    """The models, each of whose names means one of them.

    models: the first is loaded first. loaded: the one that is, with its service; None while none
    is. metrics: of all texts, whichever model wrote them. created: when, in seconds. Raises
    InvalidValueError for a name that means two models.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = models
        self.loaded: tuple[ServedModel, Service] | None = None
        self.metrics = Metrics()
        self.created = int(time.time())
        # The one that is loaded, or was at last.
        self.usual = models[0]
        self._named: dict[str, ServedModel] = {}
        for each in models:
            for name in each.names:
                if self._named.setdefault(name, each) is not each:
                    raise InvalidValueError(f"two of the models are called {name}; name each once")

    @classmethod
    def of(cls, service: Service) -> "Catalog":
        """That of a service alone."""
        only = ServedModel(service.names, service.engine.model.path, lambda: service)
        catalog = cls([only])
        catalog.enter(only, service)
        return catalog

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
        self.loaded, self.usual = (model, service), model

    def find(self, name: str) -> ServedModel | None:
        """The model of this name; None for a name that means any of them. Raises ApiError (404)."""
        if not name or name in ANY:
            return None
        if found := self._named.get(name):
            return found
        here = " or ".join(each.name for each in self.models)
        raise ApiError(
            404,
            f"the model {name:.80} is not served here; ask for {here}",
            param="model",
            code="model_not_found",
        )
