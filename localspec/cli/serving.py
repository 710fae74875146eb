"""Serving: what the process of `localspec serve` does that holds the model."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from localspec.cli.generate_output import (
    drafting_unused,
    reproducible_fact,
    template_in_words,
)
from localspec.cli.main import explaining_errors
from localspec.cli.output import Output, join_facts, show_log_as_notes
from localspec.cli.serve import ServeRequest
from localspec.cli.serve_setup import shown_name
from localspec.drafters.spec import parse_draft
from localspec.engine.engine import Engine, load_with
from localspec.errors import (
    DrafterMismatchError,
    LocalspecError,
    ModelLoadError,
    ModelNotFoundError,
)
from localspec.generation_config import GenerationConfig
from localspec.gguf.check import check_embedder, ranks
from localspec.llama import library
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.loading.drafter_finder import require_drafters
from localspec.loading.embedder_loader import embedding_context, load_embedder
from localspec.memory.available import free_memory
from localspec.models import registry
from localspec.models.locate import locate
from localspec.models.pair_finder import pair_of
from localspec.server.catalog import ServedModel
from localspec.server.child import StatusReporter
from localspec.server.client_setup import (
    CLIENTS,
    OWN_TOKENS,
    claude_code_variables,
    key_shown,
    too_small_for,
)
from localspec.server.embedding_model import EmbeddingModel
from localspec.server.kept_states import KeptStates
from localspec.server.log import show_log
from localspec.server.run import listen, serve
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool
from localspec.server.thinking import usual_variables
from localspec.utils.format import counted, format_seconds
from localspec.utils.option_names import have_no_effect, option

# Loading that takes longer says what it is at.
_QUICK_SECONDS = 2.0


def serve_model(asked: ServeRequest, reporter: StatusReporter, memory_faults: int) -> int:
    """Serve until a signal ends it; return the exit code. The function of a Job."""
    show_log_as_notes()
    show_log(as_json=asked.json_logs)
    library.tell_errors(reporter.error)
    return explaining_errors(_Serving(asked, reporter, memory_faults).run)


class _Serving:
    """The server of one process: how it loads models, and what it says of them."""

    def __init__(self, asked: ServeRequest, reporter: StatusReporter, memory_faults: int) -> None:
        self._asked, self._reporter, self._memory_faults = asked, reporter, memory_faults
        self._output = Output(color=False)
        self._embedders: Sequence[EmbeddingModel] = ()
        # The notes that were said, and of which model; no model's: of its context alone.
        self._noted: set[tuple[str, str]] = set()

    def run(self) -> None:
        asked = self._asked
        opened = listen(asked.address)
        try:
            models = [self._served(each) for each in asked.models]
            self._require_drafters(models[1:])
            self._embedders = [self._embedding(each) for each in asked.embed]
            serve(
                models,
                asked.address,
                opened,
                embedders=self._embedders,
                queue_limit=asked.queue_limit,
                unload_after=asked.unload_after,
                changed=self._changed,
                ready=self._ready,
                signalled=self._reporter.signalled,
                progress=_LoadingNotes(self._output, asked.address.url),
            )
        except ModelNotFoundError as error:
            if asked.defaults is not None:
                asked.defaults.raise_with_origin(error)
            raise

    def _served(self, model: str | None) -> ServedModel:
        """A model and its names. Raises ModelNotFoundError."""
        path = registry.bundled().target if model is None else locate(model)
        pair = pair_of(path)
        known = [shown_name(model), path.stem, *([pair.name] if pair else [])]
        names = [*dict.fromkeys([*self._asked.aliases, *known])]
        load = partial(self._load, model, names)
        asked = self._asked
        return ServedModel(names, path, load, asked.runtime["context"], asked.mmproj)

    def _embedding(self, model: str) -> EmbeddingModel:
        """A model for vectors. Raises ModelNotFoundError, ModelLoadError, InvalidValueError."""
        asked, path = self._asked, locate(model)
        header = check_embedder(path)
        n_ctx = embedding_context(header, asked.embed_ctx)
        if n_ctx < (asked.embed_ctx or 0):
            said = f"{option('embed_ctx')} is {asked.embed_ctx}"
            self._output.note(f"{said}; {path.name} reads texts of {n_ctx} tokens at most")
        runtime = RuntimeConfig.of(**asked.runtime)
        return EmbeddingModel(
            [*dict.fromkeys([shown_name(model), path.stem])],
            path,
            partial(load_embedder, path, n_ctx, runtime),
            ranks=ranks(header),
            n_ctx=n_ctx,
            queue_limit=asked.queue_limit,
            unload_after=asked.unload_after,
        )

    def _require_drafters(self, others: Sequence[ServedModel]) -> None:
        """Raise for a named drafter that does not fit a model that is loaded later."""
        draft = parse_draft(self._asked.draft)
        for each in others:
            try:
                # A file that cannot be read is told who asks for it.
                with suppress(ModelLoadError):
                    require_drafters(draft, each.path)
            except DrafterMismatchError as error:
                raise DrafterMismatchError(
                    f"{option('draft')} does not fit {each.name}: {error}; without it, each model "
                    "takes a drafter of its own"
                ) from error

    def _load(self, model: str | None, names: Sequence[str]) -> Service:
        asked = self._asked
        engine = load_with(
            EngineConfig(
                model,
                parse_draft(asked.draft),
                RuntimeConfig.of(**asked.runtime),
                asked.remember,
                copied_texts=tuple(asked.copied_texts),
                texts=asked.parallel,
                memory_faults=self._memory_faults,
                chat_template=asked.chat_template,
                mmproj=asked.mmproj,
            )
        )
        try:
            engine.warm_up()
            engine.slots.own.reproducible_width(_settings(asked))  # empties the cache to try it out
            pool = SlotPool(engine, asked.parallel, asked.queue_limit)
            kept = KeptStates(engine.model.path) if asked.keep else None
            if kept:
                kept.restore(pool.slots)
            recommended = engine.slots.own.loaded.params(GenerationConfig())
            with suppress(LocalspecError):  # a worker that is away just now
                memory = free_memory(engine.model.placement)
                self._reporter.placed(on_gpus=memory.spares_main_memory)
            return Service(
                engine,
                pool,
                names,
                # A request's order of samplers may be any as long as XTC is off.
                {"xtc_probability": recommended.xtc_probability, **asked.usual},
                system=asked.system or "",
                template_options=usual_variables(asked.told.variables),
                thinking_budget=asked.thinking_budget,
                kept=kept,
            )
        except BaseException:
            engine.close()
            raise

    def _ready(self, service: Service) -> None:
        self._reporter.ready()
        self._say([*_greeting(service, self._asked, self._embedders), *self._news(service)])

    def _changed(self, service: Service) -> None:
        self._say([_summary(service, self._asked), *self._news(service)])

    def _news(self, service: Service) -> list[str]:
        """What is to be known of a model that was loaded, and was not said before."""
        room, notes = _small_context(service.engine.context), _notes(service, self._asked)
        found = [*(("", each) for each in room), *((service.name, each) for each in notes)]
        news = [each for each in found if each not in self._noted]
        self._noted.update(news)
        return [line for _, line in news]

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._output.note(line)


def _settings(asked: ServeRequest) -> GenerationConfig:
    """The settings of texts whose requests say nothing else."""
    return GenerationConfig.of(**asked.usual)


def _greeting(
    service: Service, asked: ServeRequest, embedders: Sequence[EmbeddingModel]
) -> list[str]:
    """What is said once it answers."""
    name, url = service.name, asked.address.url
    key, context = key_shown(key=bool(asked.address.key)), service.engine.context
    claude = claude_code_variables(url, name, key, context)
    setup = f"{asked.setup_command} --ctx {context} --setup {'|'.join(CLIENTS)}"
    return [
        _summary(service, asked),
        f"serving at {url}/v1 (OpenAI) and {url} (Anthropic, Ollama); Ctrl-C ends it",
        f"chat in a browser: {url}",
        *([f"other machines reach it at {others}"] if (others := asked.address.others) else []),
        f"OpenAI clients: OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}",
        f"Claude Code: {' '.join(f'{k}={shlex.quote(v)}' for k, v in claude.items())} claude",
        *_others(asked),
        *(f"beside it: {_embedder_facts(each)}" for each in embedders),
        f"settings of other clients: {setup}",
    ]


def _summary(service: Service, asked: ServeRequest) -> str:
    """The model that is loaded, what drafts for it, and how many texts it has room for."""
    engine, reason = service.engine, service.engine.drafter_set.reason
    draft = (" or ".join(engine.drafter_set.names) or "off") + (f" ({reason})" if reason else "")
    texts = f"{counted(len(service.pool.slots), 'text')} at once, {engine.context} tokens each"
    reproducible = reproducible_fact(engine, _settings(asked))
    return join_facts([service.name, f"draft: {draft}", texts, reproducible])


def _small_context(context: int) -> list[str]:
    """What is said of a context that agents fill by themselves."""
    agents = {each: own for each, own in OWN_TOKENS.items() if too_small_for(each, context)}
    if not agents:
        return []
    return [
        f"agents ({', '.join(agents)}) send {min(agents.values()):,} tokens and more of their own "
        f"and keep room for an answer: {context:,} are too few"
    ]


def _notes(service: Service, asked: ServeRequest) -> list[str]:
    """What is to be known of a model."""
    engine = service.engine
    return [
        *engine.notes,
        *drafting_unused(engine, asked.usual),
        *_useless_system(engine, asked),
        *asked.told.without_effect(
            engine.model.chat_template or "", template_in_words(engine, asked.chat_template)
        ),
        *([service.pool.note] if service.pool.note else []),
    ]


def _useless_system(engine: Engine, asked: ServeRequest) -> list[str]:
    """What is said of a system prompt that no chat can have."""
    if not asked.system or engine.model.chat_template:
        return []
    return [have_no_effect(["--system"], f"{engine.model.path.name} has no chat template")]


def _others(asked: ServeRequest) -> list[str]:
    """What is said of the models that are not loaded, and of when the first is not any more."""
    lines = []
    if others := [shown_name(each) for each in asked.models[1:]]:
        names = " or ".join(others)
        lines.append(f"a request for {names} loads that model in its place")
    if asked.unload_after:
        spell = format_seconds(asked.unload_after)
        lines.append(f"after {spell} without a request the model is unloaded, until one comes")
    return lines


def _embedder_facts(model: EmbeddingModel) -> str:
    path = "/v1/rerank" if model.ranks else "/v1/embeddings"
    place = model.placement.devices if model.placement else ()
    where = [f"on {' and '.join(place)}"] if place else []
    return join_facts([model.name, path, f"{model.n_ctx} tokens per text", *where])


class _LoadingNotes:
    """Writes what loading is at, once it has taken a while."""

    def __init__(self, output: Output, url: str) -> None:
        self._output = output
        self._url = url
        self._began = monotonic()
        self._said: str | None = None

    def __call__(self, action: str, _share: float | None) -> None:
        if action != self._said and monotonic() - self._began > _QUICK_SECONDS:
            where = "" if self._said else f" ({self._url}/health says how far it is)"
            self._said = action
            self._output.note(f"{action}{where}")
