"""POST /infill, llama-server's way to fill a gap in a file, which editors use."""

from dataclasses import dataclass

from localspec.engine.fim_prompt import Snippet
from localspec.server.fields import Fields
from localspec.server.native_answer import Form, NativeAnswer
from localspec.server.openai_completions import USUAL_TOKENS
from localspec.server.options import TextSettings
from localspec.server.service import Service
from localspec.server.thinking_budget import refuse_budget


@dataclass(frozen=True, slots=True)
class InfillRequest:
    """A request, read and checked. prefix, suffix, written, snippets: as in `infill_prompt`."""

    prefix: str
    suffix: str
    written: str
    snippets: list[Snippet]
    settings: TextSettings
    form: Form


def read(body: Fields, service: Service) -> InfillRequest:
    """Read a request. Raises ApiError."""
    for name in ("input_prefix", "input_suffix"):
        body.needed(name)
    refuse_budget(body)
    form = Form.of(body)
    form.require_one(body, 1)
    return InfillRequest(
        body.text("input_prefix") or "",
        body.text("input_suffix") or "",
        body.text("prompt") or "",
        [_snippet(each) for each in body.objects("input_extra")],
        form.settings(_without_order(body), service, USUAL_TOKENS),
        form,
    )


def _without_order(body: Fields) -> Fields:
    """The body without `samplers`: editors name `infill` there, which is not there."""
    return Fields({name: value for name, value in body.values.items() if name != "samplers"})


def _snippet(given: Fields) -> Snippet:
    given.needed("text")
    return Snippet(given.text("filename") or "tmp", given.text("text") or "")


async def answer(request: InfillRequest, service: Service) -> NativeAnswer:
    """The answer, before it is written."""
    asked = await service.inputs.infill(
        request.prefix,
        request.suffix,
        request.settings,
        written=request.written,
        snippets=request.snippets,
    )
    return NativeAnswer(request.form, [asked], service, is_list=False)
