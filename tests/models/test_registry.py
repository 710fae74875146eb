"""The curated pairs, and a user's own file, right and wrong."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import InvalidValueError
from localspec.gguf.files import ModelFiles
from localspec.hub.reference import Repository, repository
from localspec.models import registry
from localspec.models.kinds import DRAFT_MODEL
from localspec.models.listed_drafter import IN_TARGET, ListedDrafter
from localspec.models.registry import Pair

MODELS_TOML = Path(__file__).parents[2] / "models.toml"
ENTRIES: dict[str, dict[str, Any]] = tomllib.loads(MODELS_TOML.read_text("utf-8"))["pairs"]

# Fewest and most bits a weight takes, by how llama.cpp's quantisations are made: never less than
# their name says; more where embeddings or some layers are kept finer.
BITS = {
    "Q4_K_M": (4.5, 5.7),
    "UD-Q4_K_M": (4.5, 5.7),
    "MXFP4": (4.25, 4.8),
    "Q5_0": (5.5, 5.9),
    "Q5_K_M": (5.5, 6.0),
    "Q6_K": (6.5, 6.9),
    "Q8_0": (8.5, 8.8),
    "UD-Q4_K_XL": (4.2, 5.9),
    "UD-Q6_K": (6.5, 7.5),
    "UD-Q6_K_XL": (6.5, 8.5),
    "MXFP4_MOE": (4.25, 4.8),
}
UNITS = {"B": 1e9, "M": 1e6}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a file of pairs, until a test writes one."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def write(text: str) -> None:
    registry.user_file().write_text(text, encoding="utf-8")


def counts(words: str) -> tuple[float, float]:
    """Parameters of a model: all of them, and those that each token uses."""
    numbers = [float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)([BM])", words)]
    return numbers[0], numbers[-1]


# The curated pairs


def test_the_bundled_pair_comes_first_and_its_files_are_there() -> None:
    first = next(iter(registry.pairs().values()))
    assert tuple(first.files) == registry.bundled()
    assert all(file.is_file() for file in registry.bundled())


def test_the_families_people_run_are_there() -> None:
    names = list(registry.pairs())
    assert len(names) >= 45
    families = (
        *("qwen3-", "qwen3.5-", "llama3", "gemma3-", "gemma4-", "mistral", "smollm"),
        *("deepseek-r1-", "gpt-oss-", "qwen2.5-coder-", "qwen3-coder-", "devstral"),
        *("qwen3.6-", "qwen3.8-", "gemma4-e", "lfm2.5-", "nemotron3.5-", "muse-", "glm4.7-"),
    )
    for family in families:
        assert any(name.startswith(family) for name in names), family


def test_no_two_pairs_are_for_one_target() -> None:
    targets = [
        pair.target.id if isinstance(pair.target, Repository) else pair.target
        for pair in registry.pairs().values()
    ]
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("name", ENTRIES)
class TestCurated:
    def test_its_name_is_as_people_say_it(self, name: str) -> None:
        assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name)
        assert registry.pairs()[name].name == name

    def test_its_models_are_bundled_or_repositories(self, name: str) -> None:
        entry, pair = ENTRIES[name], registry.pairs()[name]
        drafters = [entry["drafter"]] if "drafter" in entry else []
        drafters += [each["file"] for each in entry.get("drafters", ())]
        texts = [entry["target"], *(each for each in drafters if each != IN_TARGET)]
        for reference, text in zip(pair.files, texts, strict=True):
            if isinstance(reference, Path):
                assert text == f"bundled:{reference.name}" and reference.is_file()
            else:
                assert str(reference) == text and repository(text) == reference

    def test_every_drafter_is_one_certain_file(self, name: str) -> None:
        for each in registry.pairs()[name].drafters:
            if isinstance(each.file, Repository) and "file" not in each.unverified:
                assert each.file.quant in BITS or str(each.file.quant).endswith(".gguf")

    def test_it_has_a_drafter_or_says_why_not(self, name: str) -> None:
        pair = registry.pairs()[name]
        assert bool(pair.drafters) != bool(pair.no_drafter)

    def test_a_draft_model_computes_less_per_token(self, name: str) -> None:
        pair = registry.pairs()[name]
        target, _, drafter = pair.parameters.partition(" + ")
        assert bool(drafter) == any(each.kind == DRAFT_MODEL for each in pair.drafters)
        assert not drafter or counts(drafter)[1] < counts(target)[1]

    def test_every_listed_drafter_says_who_knows_it(self, name: str) -> None:
        pair = registry.pairs()[name]
        for each in pair.drafters:
            assert each.source or tuple(pair.files) == registry.bundled()
            assert not {each.report, each.loses} & {"none", "unknown"}
            assert not (each.report and each.loses), "what loses is not reported to pay"

    def test_what_no_source_checked_of_a_file_is_said(self, name: str) -> None:
        listed = registry.pairs()[name].drafters if "drafters" in ENTRIES[name] else ()
        for each in listed:
            known = {"size": each.size, "sha256": each.sha256}
            missing = {key for key, value in known.items() if each.file and not value}
            assert missing <= {*each.unverified}
            assert each.file is not None or not (each.size or each.sha256)

    def test_a_drafter_is_much_smaller_than_its_target(self, name: str) -> None:
        pair = registry.pairs()[name]
        smallest = min(pair.sizes.values()) * 1e9
        assert all(each.size < 0.5 * smallest for each in pair.drafters)

    def test_files_without_heads_belong_to_one_with(self, name: str) -> None:
        pair = registry.pairs()[name]
        assert not pair.without_heads or any(each.file is None for each in pair.drafters)

    def test_its_sizes_follow_from_its_parameters(self, name: str) -> None:
        pair = registry.pairs()[name]
        weights, _ = counts(pair.parameters.partition(" + ")[0])
        assert pair.sizes
        for quant, gigabytes in pair.sizes.items():
            least, most = BITS[quant]
            # Both numbers are rounded.
            assert least * 0.98 < gigabytes * 8e9 / weights < most, quant
            assert ModelFiles((f"model-{quant}.gguf",)).quant == quant

    def test_the_size_of_the_file_that_is_meant_is_there(self, name: str) -> None:
        pair = registry.pairs()[name]
        asked = pair.target.quant if isinstance(pair.target, Repository) else None
        assert (asked or next(iter(pair.sizes))) in pair.sizes

    def test_what_it_is_for_and_what_is_allowed_is_said(self, name: str) -> None:
        pair = registry.pairs()[name]
        assert pair.licence and pair.context >= 2048
        assert 30 < len(pair.note) <= 100 and pair.note.endswith(".")

    def test_what_could_not_be_looked_up_is_given_all_the_same(self, name: str) -> None:
        assert set(registry.pairs()[name].unverified) <= ENTRIES[name].keys()


QWEN3 = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0}


@pytest.mark.parametrize(
    ("names", "sampling"),
    [
        # The cards of Qwen's own GGUFs name a penalty more than those of the unquantised models.
        (["qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"], {**QWEN3, "presence_penalty": 1.5}),
        # OpenAI names no min-p.
        (["gpt-oss-20b", "gpt-oss-120b"], {"temperature": 1, "top_k": 0, "top_p": 1}),
        # Sources that differ, that are a mere example, or none.
        (["qwen3.6-27b", "qwen3.6-35b-a3b", "smollm2-1.7b", "glm4.5-air"], {}),
    ],
)
def test_only_what_a_targets_makers_name_is_its_sampling(
    names: list[str], sampling: dict[str, float]
) -> None:
    for name in names:
        assert registry.pairs()[name].sampling == sampling, name


# A user's own


def test_without_a_file_there_are_the_curated_pairs_only() -> None:
    assert list(registry.pairs()) == list(ENTRIES)


def test_a_user_adds_a_pair(home: Path) -> None:
    write(f'[pairs.mine]\ntarget = "{home}/target.gguf"\ndrafter = "someone/small:q8_0"\n')
    pairs = registry.pairs()
    assert pairs["mine"] == Pair(
        name="mine",
        target=home / "target.gguf",
        drafters=(ListedDrafter(file=Repository("someone/small", "q8_0")),),
    )
    assert set(pairs) == {"mine", *ENTRIES}


def test_a_user_replaces_a_pair_whole() -> None:
    write('[pairs.qwen3-8b]\ntarget = "me/mine"\n')
    assert registry.pairs()["qwen3-8b"] == Pair(name="qwen3-8b", target=Repository("me/mine"))
    assert len(registry.pairs()) == len(ENTRIES)


def test_a_users_pairs_are_looked_through_first() -> None:
    write('[pairs.mine]\ntarget = "Qwen/Qwen3-8B-GGUF"\n')
    assert next(iter(registry.pairs())) == "mine"


def test_a_path_may_begin_at_home() -> None:
    write('[pairs.mine]\ntarget = "~/models/target.gguf"\n')
    assert registry.pairs()["mine"].target == Path.home() / "models" / "target.gguf"


def test_every_key_can_be_given() -> None:
    write(
        '[pairs.mine]\ntarget = "me/mine"\nno_drafter = "none fits"\nprompt = "raw"\n'
        'parameters = "8B"\ncontext = 4096\nsizes = { Q8_0 = 8, F16 = 16.1 }\nlicence = "MIT"\n'
        'note = "Mine."\nunverified = ["sizes", "licence"]\n'
        "sampling = { temperature = 1, top_k = 20, presence_penalty = 1.5 }\n"
    )
    assert registry.pairs()["mine"] == Pair(
        name="mine",
        target=Repository("me/mine"),
        no_drafter="none fits",
        prompt="raw",
        parameters="8B",
        context=4096,
        sizes={"Q8_0": 8, "F16": 16.1},
        sampling={"temperature": 1.0, "top_k": 20, "presence_penalty": 1.5},
        licence="MIT",
        note="Mine.",
        unverified=("sizes", "licence"),
    )


def test_several_drafters_of_any_kind_can_be_given(home: Path) -> None:
    write(
        f'[pairs.mine]\ntarget = "me/mine"\nwithout_heads = ["me/plain"]\n'
        '[[pairs.mine.drafters]]\nkind = "mtp"\nfile = "in the target"\n'
        f'[[pairs.mine.drafters]]\nkind = "eagle3"\nfile = "{home}/head.gguf"\nsize = 12\n'
        f'sha256 = "{"ab" * 32}"\nreport = "2 x"\nloses = "here"\nsource = "me"\n'
        'unverified = ["size"]\n'
    )
    pair = registry.pairs()["mine"]
    assert pair.drafters == (
        ListedDrafter(kind="mtp"),
        ListedDrafter(
            kind="eagle3",
            file=home / "head.gguf",
            size=12,
            sha256="ab" * 32,
            report="2 x",
            loses="here",
            source="me",
            unverified=("size",),
        ),
    )
    assert pair.files == [Repository("me/mine"), home / "head.gguf"]
    assert pair.without_heads == (Repository("me/plain"),)


def test_the_example_in_models_toml_is_right() -> None:
    example = re.findall(r"^#     (\S.*)$", MODELS_TOML.read_text("utf-8"), re.MULTILINE)
    write("\n".join(example))
    added = registry.pairs().keys() - ENTRIES
    assert len(added) == 1
    pair = registry.pairs()[added.pop()]
    assert [type(each) for each in pair.files] == [type(Path())] * 2


def refusal() -> str:
    """What is said of the user's file, with its path left out."""
    with pytest.raises(InvalidValueError) as raised:
        registry.pairs()
    message = str(raised.value)
    assert message.startswith(str(registry.user_file())) and "\n" not in message
    return message.removeprefix(str(registry.user_file()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pairs", " is not valid TOML: "),
        ("[pairs.a]\n[pairs.a]", " is not valid TOML: "),
        (f"a = {'[' * 100_000}", " is not valid TOML: "),
        (f"a = {'9' * 10_000}", " is not valid TOML: "),
        ("pairs = 1", ": 'pairs' is not a pair"),
        ('[pair.a]\ntarget = "b/c"', ": 'pair' is not a pair; a pair begins with [pairs.NAME]"),
        ('["new\\nline"]', r": 'new\nline' is not a pair"),
        ("[pairs]\na = 1", ": [pairs.a] is 1; write target = "),
        ("[pairs.a]", ': [pairs.a] has no target; add target = "user/repo", or an absolute path'),
        ('[pairs.qwen3.5]\ntarget = "b/c"', ": [pairs.qwen3] has an unknown key '5'; a name with"),
        (
            '[pairs."b/c"]\ntarget = "b/c"',
            ": 'b/c' is not a valid name of a pair; use letters, digits",
        ),
        ('[pairs."new\\nline"]\ntarget = "b/c"', r": 'new\nline' is not a valid name"),
        ("targte = 1", ": [pairs.a] has an unknown key 'targte'; did you mean target?"),
        ('name = "b"', ": [pairs.a] has an unknown key 'name'; remove it: the keys"),
        ("layers = 4", ": [pairs.a] has an unknown key 'layers'; remove it: the keys are target, "),
        ("target = 1", ": [pairs.a]: target is 1; it is an absolute path or user/repo[:quant]"),
        ('target = ""', ": [pairs.a]: target is ''"),
        ('target = "model.gguf"', ": [pairs.a]: target is 'model.gguf'"),
        ('target = "bundled:none.gguf"', ": [pairs.a]: target is 'bundled:none.gguf'"),
        ('target = "bundled:../gguf.py"', ": [pairs.a]: target is 'bundled:../gguf.py'"),
        ('target = "bundled:"', ": [pairs.a]: target is 'bundled:'"),
        ('target = "~nobody-here/b.gguf"', ": [pairs.a]: target is '~nobody-here/b.gguf'"),
        ("drafter = false", ": [pairs.a]: drafter is False; it is an absolute path"),
        ('drafter = "d/e"\nno_drafter = "f"', ": [pairs.a] has both drafter and no_drafter"),
        ('drafter = "d/e"\ndrafters = []', ": [pairs.a] has both drafter and drafters; keep one"),
        ("drafters = []", ": [pairs.a]: drafters is []; it is a list of tables with a kind"),
        ("drafters = [1]", ": [pairs.a]: drafter 1 is 1; it is a table with a kind and a file"),
        ('drafters = [{ kind = "mtp" }]', ": [pairs.a]: drafter 1 has no file; add it"),
        (
            'drafters = [{ kind = "mpt", file = "b/c" }]',
            ": [pairs.a]: drafter 1: kind is 'mpt'; it is one of mtp, assistant, dflash2, dspark, ",
        ),
        (
            'drafters = [{ kind = [], file = "b/c" }]',
            ": [pairs.a]: drafter 1: kind is []; it is one of mtp",
        ),
        (
            'drafters = [{ kind = "pard", file = "in the target" }]',
            ": [pairs.a]: drafter 1: a pard is never in the target; name its file",
        ),
        (
            'drafters = [{ kind = "mtp", file = "b.gguf" }]',
            ": [pairs.a]: drafter 1: file is 'b.gguf'; it is an absolute path or user/repo[:quant]",
        ),
        (
            'drafters = [{ kind = "mtp", file = "b/c", sha256 = "AB" }]',
            ": [pairs.a]: drafter 1: sha256 is 'AB'; it is 64 lower-case hexadecimal digits",
        ),
        (
            'drafters = [{ kind = "mtp", file = "b/c", size = 1.5 }]',
            ": [pairs.a]: drafter 1: size is 1.5; it is a whole number of bytes",
        ),
        (
            'drafters = [{ kind = "mtp", file = "b/c", depth = 2 }]',
            ": [pairs.a]: drafter 1 has an unknown key 'depth'; the keys are kind, file, size",
        ),
        (
            'drafters = [{ kind = "mtp", file = "b/c", unverified = ["depth"] }]',
            ": [pairs.a]: drafter 1: unverified is ['depth']; it is a list of kind, file",
        ),
        ("without_heads = [1]", ": [pairs.a]: without_heads is [1]; it is a list of user/repo"),
        ("no_drafter = true", ": [pairs.a]: no_drafter is True; it is a text"),
        ('prompt = "talk"', ": [pairs.a]: prompt is 'talk'; it is chat or raw"),
        ('prompt = ["raw"]', ": [pairs.a]: prompt is ['raw']; it is chat or raw"),
        ("parameters = 8", ": [pairs.a]: parameters is 8; it is a text"),
        ('context = "4096"', ": [pairs.a]: context is '4096'; it is a whole number of tokens"),
        ("context = 4096.0", ": [pairs.a]: context is 4096.0; it is a whole number"),
        ("context = true", ": [pairs.a]: context is True; it is a whole number"),
        ("context = 0", ": [pairs.a]: context is 0; it is a whole number"),
        ("sizes = 5.0", ": [pairs.a]: sizes is 5.0; it is a table of gigabytes"),
        ('sizes = { Q8_0 = "8" }', ": [pairs.a]: sizes is {'Q8_0': '8'}; it is a table"),
        ("sizes = { Q8_0 = -1 }", ": [pairs.a]: sizes is {'Q8_0': -1}; it is a table"),
        ("sizes = { Q8_0 = inf }", ": [pairs.a]: sizes is {'Q8_0': inf}; it is a table"),
        ("sizes = { Q8_0 = nan }", ": [pairs.a]: sizes is {'Q8_0': nan}; it is a table"),
        ("sampling = 0.6", ": [pairs.a]: sampling is 0.6; it is a table of numbers, as { temper"),
        (
            "sampling = { temprature = 0.6 }",
            ": [pairs.a]: sampling has an unknown key 'temprature'; did you mean temperature?",
        ),
        (
            "sampling = { logit_bias = 1 }",
            ": [pairs.a]: sampling has an unknown key 'logit_bias'; the keys are temperature, ",
        ),
        (
            'sampling = { top_k = "20" }',
            ": [pairs.a]: sampling: top_k is '20', a str; it must be a whole number",
        ),
        (
            "sampling = { top_k = 20.5 }",
            ": [pairs.a]: sampling: top_k is 20.5, a float; it must be a whole number",
        ),
        (
            "sampling = { temperature = true }",
            ": [pairs.a]: sampling: temperature is True, a bool; it must be a number",
        ),
        (
            "sampling = { temperature = -1 }",
            ": [pairs.a]: sampling: temperature is -1; it must be 0 or more",
        ),
        (
            "sampling = { temperature = nan }",
            ": [pairs.a]: sampling: temperature is nan; it must be a finite number",
        ),
        ("licence = []", ": [pairs.a]: licence is []; it is a text"),
        ("note = 2026-01-01", ": [pairs.a]: note is datetime.date(2026, 1, 1); it is a text"),
        ('unverified = "sizes"', ": [pairs.a]: unverified is 'sizes'; it is a list of target"),
        ('unverified = ["size"]', ": [pairs.a]: unverified is ['size']; it is a list of"),
        ("unverified = [[1]]", ": [pairs.a]: unverified is [[1]]; it is a list of"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(text: str, said: str) -> None:
    whole = "[" in text.partition("=")[0] or text.startswith(("pairs", "a ="))
    target = "" if "target =" in text else 'target = "b/c"\n'
    write(text if whole else f"[pairs.a]\n{target}{text}")
    assert refusal().startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[mine]\ntarget = "b/c"', ": 'mine' is not a pair; a pair begins with [pairs.NAME]"),
        (
            '[pairs.mine]\nmodel = "b/c"',
            ": [pairs.mine] has an unknown key 'model'; remove it: the",
        ),
        (
            '[pairs.mine]\ntarget = "b/c"\ndraft = "d/e"',
            ": [pairs.mine] has an unknown key 'draft'; did you mean drafter?",
        ),
        (
            '[pairs.mine]\ntarget = "b/c"\nlicense = "MIT"',
            ": [pairs.mine] has an unknown key 'license'; did you mean licence?",
        ),
        (
            "version = 2\n[pairs.mine]\nfiles = []",
            ": version is 2, and this localspec reads version 1; update localspec, or move",
        ),
        (
            'version = 0\n[mine]\ntarget = "b/c"',
            ": version is 0, and this localspec reads version 1; write the pairs as [pairs.NAME]"
            " with a target, and version = 1",
        ),
        ('version = "1"', ": version is '1', and this localspec reads version 1; write "),
        ("version = true", ": version is True, and this localspec reads version 1; write "),
    ],
)
def test_a_file_of_another_version_is_told_in_one_line(text: str, said: str) -> None:
    write(text)
    assert refusal().startswith(said)


def test_a_file_may_name_the_version_of_its_format() -> None:
    write('version = 1\n[pairs.mine]\ntarget = "me/mine"\n')
    assert registry.pairs()["mine"] == Pair(name="mine", target=Repository("me/mine"))


@pytest.mark.parametrize(
    "command",
    [["ls"], ["ls", "--all"], ["show", "terminal"], ["pair", "terminal"], ["generate", "x"]],
)
def test_commands_refuse_a_file_of_another_version(command: list[str]) -> None:
    write("version = 2\n")
    arguments = [sys.executable, "-m", "localspec", *command]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (InvalidValueError.exit_code, "")
    assert run.stderr == (
        f"localspec: error: {registry.user_file()}: version is 2, and this localspec "
        "reads version 1; update localspec, or move the file\n"
    )


def test_a_pair_is_found_in_any_case() -> None:
    write('[pairs.Mine]\ntarget = "me/mine"\n')
    for name in ("Mine", "mine", "MINE:Q8_0"):
        found = registry.pair_named(name)
        assert found and found.name == "Mine"
    assert registry.pair_named("Qwen3-8B") is registry.pairs()["qwen3-8b"]
    assert registry.pair_named("me/mine") is None


def test_a_file_that_is_no_text_is_told_in_one_line() -> None:
    registry.user_file().write_bytes(b'[pairs.a]\ntarget = "\xff"\n')
    assert refusal().startswith(" cannot be read: 'utf-8' codec can't decode byte 0xff")


def test_a_folder_in_place_of_the_file_is_told_in_one_line() -> None:
    registry.user_file().mkdir()
    assert refusal() == " cannot be read: Is a directory; repair or move it"


VALUES = st.recursive(
    st.text(max_size=8) | st.integers() | st.floats(allow_nan=False) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        "target",
        "drafter",
        "drafters",
        "no_drafter",
        "kind",
        "file",
        "prompt",
        "context",
        "sizes",
        "note",
    ]
)


@given(st.dictionaries(KEYS | st.text(max_size=5), VALUES | st.dictionaries(KEYS, VALUES)))
def test_whatever_a_file_holds_it_is_read_or_told_in_one_line(entry: dict[str, Any]) -> None:
    write("[pairs.a]\n" + "".join(f"{json.dumps(key)} = {toml(entry[key])}\n" for key in entry))
    try:
        assert isinstance(registry.pairs()["a"], Pair)
    except InvalidValueError as error:
        assert "\n" not in str(error)


def toml(value: Any) -> str:
    """A value as TOML has it: as JSON has it, but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(value[key])}" for key in value) + "}"
    return json.dumps(value)
