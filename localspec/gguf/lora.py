"""LoRA adapters: files of narrow matrices, two for each matrix of a model that they change.

llama.cpp's convert_lora_to_gguf makes them. It adds B (A x) to what a matrix makes of x, multiplied
with a scale and, where the file has an alpha, with alpha / rank. It ends the process on several
files that it has loaded, so all of them are refused here.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.errors import InvalidValueError, ModelLoadError
from localspec.gguf.facts import Facts
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.reader import Header, TensorInfo, display_name, read_header
from localspec.gguf.types import TENSOR_TYPES
from localspec.utils.format import counted
from localspec.utils.option_names import option
from localspec.utils.paths import stat_signature

# The type in the headers of adapters.
ADAPTER = "adapter"
_MOST_SCALE = 1000.0
_A, _B, _NORM = ".lora_a", ".lora_b", "_norm.weight"
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_INVOCATION = "adapter.alora.invocation_tokens"
_ALPHA = "adapter.lora.alpha"
_CONVERT = "llama.cpp's convert_lora_to_gguf.py makes one of a PEFT adapter"
_OTHER_MODEL = "it was made for another model: name the one that it was trained on"
_MERGE = "merge it into its model (llama-export-lora) and pass that"
# Types that llama.cpp ends on when it multiplies with them.
_NO_FACTORS = ("I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K")
# Of a model's matrices of this type, llama.cpp ends on those that an adapter changes.
_WITHOUT_ADAPTERS = "NVFP4"
# llama.cpp's CPU multiplies a single row with other kernels than several with these types.
_ROW_APART = ("F32", "F16", "BF16", "IQ4_NL")
# Two adapters are always added in the same order. Among more, it is another one in each run, also
# where only two of them change a matrix.
_MOST_IN_ORDER = 2


@dataclass(frozen=True, slots=True)
class Lora:
    """A LoRA adapter to load with a target.

    path: of its file. scale: what its changes are multiplied with; below 0 they are taken away.
    file_signature: of its file when it was read; None before. Raises InvalidValueError for a scale
    that is none.
    """

    path: Path
    scale: float = 1.0
    file_signature: tuple[str | int, ...] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 < abs(self.scale) <= _MOST_SCALE:
            way_out = "leave the adapter out" if self.scale == 0 else "1 is as it was trained"
            raise InvalidValueError(
                f"lora is {self}; its scale must be from {-_MOST_SCALE:g} to {_MOST_SCALE:g} and "
                f"not 0; {way_out}"
            )

    def __str__(self) -> str:
        """In words, as on the command line: FILE:SCALE."""
        return f"{display_name(self.path.name)}:{self.scale:g}"

    @property
    def option(self) -> str:
        """What `parse` reads, in any folder."""
        return f"{self.path.absolute()}:{self.scale!r}"

    @classmethod
    def parse(cls, given: str | Path) -> "Lora":
        """Read FILE or FILE:SCALE; a Path is a file. Raises InvalidValueError."""
        text = str(given)
        file, colon, scale = text.rpartition(":")
        if not (file if colon else text):
            raise InvalidValueError(f"lora is {text!r}; name an adapter: FILE, or FILE:SCALE")
        if isinstance(given, Path) or not colon or Path(text).exists():
            return cls(Path(text))
        try:
            return cls(Path(file), float(scale))
        except ValueError as error:
            if isinstance(error, InvalidValueError):
                raise
            if not Path(file).exists():
                return cls(Path(text))
            raise InvalidValueError(
                f"lora is {text!r}; its scale {scale!r} is no number: write FILE:0.5, or FILE for 1"
            ) from error


@dataclass(frozen=True, slots=True)
class LoraFile:
    """An adapter whose header was read.

    pairs: the tensors A and B by the name of the matrix that they change. norms: how many vectors
    of norms it has too, which llama.cpp leaves out.
    """

    lora: Lora
    header: Header
    pairs: Mapping[str, tuple[TensorInfo, TensorInfo]]
    norms: int

    @property
    def tensors(self) -> Iterator[TensorInfo]:
        """What takes memory beside the model."""
        for pair in self.pairs.values():
            yield from pair

    @property
    def rank(self) -> int:
        """The largest rank of its matrices."""
        return max(b.shape[0] for _, b in self.pairs.values())

    @property
    def architecture(self) -> str:
        """The architecture of the models that it changes."""
        return self.header.architecture

    @property
    def alpha(self) -> float:
        """What its changes are multiplied with, times the rank; 0: they are taken as they are."""
        value = self.header.metadata.get(_ALPHA)
        return value if isinstance(value, float) else 0.0

    @property
    def base(self) -> str:
        """The name of the model that it was trained on; empty where its header has none."""
        return self._text("general.base_model.0.name")

    @property
    def task(self) -> str:
        """What it is for; empty where its header does not say."""
        return self._text("adapter.lora.task_name")

    @property
    def prompt_prefix(self) -> str:
        """What prompts for it begin with; empty where its header does not say."""
        return self._text("adapter.lora.prompt_prefix")

    def _text(self, key: str) -> str:
        value = self.header.metadata.get(key)
        return value if isinstance(value, str) else ""

    @property
    def shape_in_words(self) -> str:
        """How many matrices it changes, and its rank."""
        count = len(self.pairs)
        matrices = f"{count} {'matrix' if count == 1 else 'matrices'}"
        return f"rank {self.rank}, {matrices} of architecture {self.architecture}"

    @property
    def types_apart(self) -> Sequence[str]:
        """The types of its tensors that give a pass of one row other digits than wider ones."""
        names = {TENSOR_TYPES[tensor.type].name for tensor in self.tensors}
        return [name for name in _ROW_APART if name in names]

    @property
    def notes(self) -> Iterator[str]:
        """Yield what is said of it when it is loaded, one line each."""
        name, effect = self.lora.path.name, ""
        if types := self.types_apart:
            effect = (
                f"; in {' and '.join(types)}, so drafts may change near-ties "
                f"(not with {option('reproducible')})"
            )
        yield f"LoRA adapter {name}, scale {self.lora.scale:g}: {self.shape_in_words}{effect}"
        if self.norms:
            norms = counted(self.norms, "norm")
            yield f"{name}: {norms} left out, as llama.cpp reads its matrices only"


def is_adapter(header: Header) -> bool:
    """Whether a file is an adapter, of whatever kind."""
    return header.metadata.get("general.type") == ADAPTER


def check_lora(lora: Lora) -> LoraFile:
    """Read the header of an adapter.

    Raises ModelNotFoundError, and ModelLoadError for a file that is none, or none for llama.cpp.
    """
    path, name = lora.path, display_name(lora.path)
    if path.suffix == ".safetensors" or (path / "adapter_config.json").is_file():
        raise ModelLoadError(f"{name} is an adapter in another format; {_CONVERT}")
    header = read_header(path)
    kind = header.metadata.get("general.type")
    if kind != ADAPTER:
        what = kind if isinstance(kind, str) else header.architecture or "of no type"
        raise ModelLoadError(f"{name} is no LoRA adapter ({what:.80}); {_CONVERT}")
    if (method := header.metadata.get("adapter.type")) != "lora":
        what = f"of type {method!r:.80}" if isinstance(method, str) else "whose type is no text"
        raise ModelLoadError(f"{name} is an adapter {what}, not lora; {_MERGE}")
    if _INVOCATION in header.metadata:
        raise ModelLoadError(
            f"{name} is an activated adapter (aLoRA), which counts only behind certain tokens; "
            "llama-server has these, and here an adapter counts for the whole text"
        )
    alpha = header.metadata.get(_ALPHA, 0.0)
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise ModelLoadError(f"{name} has the alpha {alpha!r:.80}, not a number; make it again")
    pairs, norms = _pairs(name, header)
    lora = replace(lora, file_signature=tuple(stat_signature(path)))
    return LoraFile(lora, header, pairs, norms)


def _pairs(name: str, header: Header) -> tuple[Mapping[str, tuple[TensorInfo, TensorInfo]], int]:
    """The tensors A and B of an adapter by what they change, and the number of its norms."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    pairs: dict[str, tuple[TensorInfo, TensorInfo]] = {}
    norms = 0
    for tensor in tensors.values():
        matrix = tensor.name.removesuffix(_A).removesuffix(_B)
        if matrix == tensor.name:
            if not tensor.name.endswith(_NORM):
                raise ModelLoadError(
                    f"{name} has a tensor {tensor.name!r}, which is no part of a LoRA; {_MERGE}"
                )
            norms += 1
            continue
        for end in (_A, _B):
            if matrix + end not in tensors:
                raise ModelLoadError(f"{name} has no tensor {matrix + end!r}; make it again")
        type_name = TENSOR_TYPES[tensor.type].name
        if type_name in _NO_FACTORS:
            raise ModelLoadError(
                f"{name} stores tensor {tensor.name!r} as {type_name}, which llama.cpp cannot "
                "compute with; make it again with --outtype f16"
            )
        pairs[matrix] = tensors[matrix + _A], tensors[matrix + _B]
    if not pairs:
        raise ModelLoadError(f"{name} changes no matrix; make it again")
    return pairs, norms


def fitting_adapters(loras: Sequence[Lora], target: Facts) -> Sequence[LoraFile]:
    """Read the headers of the adapters that a target is loaded with.

    Raises as `check_lora`, and ModelLoadError for one that was made for another model.
    """
    found = [check_lora(lora) for lora in loras]
    matrices = {tensor.name: tensor for tensor in target.tensors}
    for each in found:
        _require_fits(each, matrices, target)
    if len(found) > _MOST_IN_ORDER:
        _require_apart(found)
    return found


def _require_apart(files: Sequence[LoraFile]) -> None:
    """Raise InvalidValueError where two of these adapters change the same matrix."""
    first = dict[str, LoraFile]()
    for file in files:
        for matrix in file.pairs:
            other = first.setdefault(matrix, file)
            if other is not file:
                raise InvalidValueError(
                    f"lora is {', '.join(str(each.lora) for each in files)}, of which "
                    f"{other.lora} and {file.lora} both change {matrix!r}: of more than "
                    f"{_MOST_IN_ORDER} adapters, llama.cpp adds those in an order that is another "
                    "one in each run, and so are the last digits; merge one of them into the model "
                    "(llama-export-lora)"
                )


def unused_note(files: Sequence[LoraFile], changed: int | None, model: str) -> str | None:
    """Why not all of these adapters counts; None if it does, or if that is not known.

    changed: how many matrices of a model the adapters change when it computes.
    """
    most = sum(len(each.pairs) for each in files)
    if changed is None or changed >= most:
        return None
    names = " and ".join(each.lora.path.name for each in files)
    return (
        f"{names}: only {changed} of {most} changes count: llama.cpp computes the other matrices "
        f"of {model} without adapters; merge it into the model (llama-export-lora)"
    )


def _require_fits(file: LoraFile, matrices: Mapping[str, TensorInfo], target: Facts) -> None:
    name, model = display_name(file.lora.path), target.files[0].name
    if file.architecture != target.header.architecture:
        raise ModelLoadError(
            f"{name} is an adapter for models of architecture {file.architecture!r:.80}, and "
            f"{model} is {target.header.architecture!r:.80}: {_OTHER_MODEL}"
        )
    for matrix, (a, b) in file.pairs.items():
        of_model = matrices.get(matrix)
        if of_model is None:
            raise ModelLoadError(
                f"{name} changes {matrix!r}, which {model} has not: {_OTHER_MODEL}"
            )
        if not _is_product(matrix, a, b, of_model):
            shapes = " and ".join("x".join(map(str, each.shape)) for each in (a, b))
            raise ModelLoadError(
                f"{name} changes {matrix!r} by matrices of {shapes}, which is "
                f"{'x'.join(map(str, of_model.shape))} in {model}: {_OTHER_MODEL}"
            )
        if matrix == _EMBEDDING and _OUTPUT not in matrices:
            raise ModelLoadError(
                f"{name} changes the token embedding, which is the output matrix of {model} as "
                f"well: llama.cpp cannot compute that; {_MERGE}"
            )
        if TENSOR_TYPES[of_model.type].name == _WITHOUT_ADAPTERS:
            raise ModelLoadError(
                f"{name} changes {matrix!r}, which {model} stores as {_WITHOUT_ADAPTERS}: "
                "llama.cpp cannot compute that; take another quantisation of the model"
            )


def _is_product(matrix: str, a: TensorInfo, b: TensorInfo, of_model: TensorInfo) -> bool:
    """Whether the matrices have the shapes of B and A whose product is added to the model's."""
    (columns, rank, *a_more), (b_rank, rows, *b_more), (wide, high, *more) = (
        (*each.shape, *(1,) * (4 - len(each.shape))) for each in (a, b, of_model)
    )
    if matrix.endswith(_EMBEDDING):  # A has a row for each token
        columns, rank, rows, b_rank = rows, columns, rank, b_rank
    return (columns, rows, rank) == (wide, high, b_rank) and a_more == b_more == more


def fingerprints(loras: Sequence[Lora]) -> list[dict[str, str | float]]:
    """What tells the changes of these adapters from others, wherever their files are.

    Raises OSError.
    """
    return [{"fingerprint": fingerprint(each.path), "scale": each.scale} for each in loras]


def signature(loras: Sequence[Lora]) -> list[list[str | int | float]]:
    """What tells these adapters from others, as a part of the key of stored measurements.

    Their files may be others, or gone, since they were loaded. Raises OSError for those that were
    not read yet.
    """
    return [[*(each.file_signature or stat_signature(each.path)), each.scale] for each in loras]
