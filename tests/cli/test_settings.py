"""Settings: an option, a variable, config.toml, a default; and `localspec config`."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from fakes.command_line import Run
from fakes.generate_runs import DRAFTER

from localspec.cli.config_edit import with_value
from localspec.cli.main import localspec as commands
from localspec.cli.settings import SETTINGS, CommandDefaults, Settings
from localspec.errors import InvalidValueError
from localspec.gguf.kv_types import KV_TYPES
from localspec.gguf.reader import read_header
from localspec.loading.config import RuntimeConfig
from localspec.models import registry
from localspec.sampling.params import SamplingParams

BUNDLED = registry.bundled().target
ASK = ("generate", "def f(", "-n", "5", "--seed", "3")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config.toml of this test, which is not there yet."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path / "config.toml"


def settings_shown(cli: Run) -> dict[str, Any]:
    """What `localspec config --json` says of each setting."""
    settings: dict[str, Any] = cli("config", "--json").record["settings"]
    return settings


def test_an_option_comes_before_a_variable_before_the_file(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('draft = "lookup"\n')
    assert "draft: lookup" in cli(*ASK).err
    monkeypatch.setenv("LOCALSPEC_DRAFT", "ngram")
    assert "draft: ngram" in cli(*ASK).err
    assert "draft: suffix," in cli(*ASK, "--draft", "suffix").err


def test_each_setting_reaches_the_engine(cli: Run, file: Path) -> None:
    file.write_text(
        f'model = "{BUNDLED.as_posix()}"\ndraft = "none"\nthreads = 1\nctx = 300\ngpu_layers = 0\n'
        'kv_type = "q8_0"\ndraft_kv_type = "q8_0"\n'
    )
    done = cli(*ASK, "--json")
    assert done.lines[0].startswith(f"localspec: {BUNDLED.stem} · draft: off")
    assert done.record["recipe"]["kv_type"] == "q8_0"
    long = cli("generate", "word " * 400)
    assert "the context holds 300" in long.err


def test_settings_scale_rotations(cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('rope_scaling = "yarn"\nrope_scale = 1.5\ndraft = "none"\nctx = 2500\n')
    done = cli(*ASK, "--json")
    assert done.record["recipe"]["rope"] == {"rope_scaling": "yarn", "rope_scale": 1.5}
    assert "yarn, 1.5 times 2,048 tokens" in done.err
    monkeypatch.setenv("LOCALSPEC_ROPE_SCALE", "2.25")
    monkeypatch.setenv("LOCALSPEC_YARN_ORIG_CTX", "2000")
    assert "yarn, 2.25 times 2,000 tokens" in cli(*ASK).err
    assert cli("config", "set", "rope_freq_base", "1e6").code == 0
    assert "rope_freq_base = 1000000.0\n" in file.read_text()
    monkeypatch.setenv("LOCALSPEC_ROPE_SCALE", "much")
    done = cli(*ASK)
    assert done.code == 2
    assert "is 'much'; it must be a number of at least 1 and at most 1000" in done.err
    monkeypatch.setenv("LOCALSPEC_ROPE_SCALE", "2")
    done = cli(*ASK, "--rope-scaling", "ntk")
    assert done.code == 2
    assert "--rope-scaling is 'ntk'; it must be one of none, linear, yarn" in done.err


def test_the_models_own_rotations_come_back(cli: Run, file: Path) -> None:
    file.write_text(
        'draft = "none"\nrope_scaling = "yarn"\nrope_scale = 4\nrope_freq_base = 1.5\n'
        "yarn_orig_ctx = 2000\ndraft_rope_scale = 2\n"
    )
    assert len(cli(*ASK, "--json").record["recipe"]["rope"]) == 4
    done = cli(*ASK, "--json", "--rope-scaling", "model")
    assert not done.record["recipe"].get("rope") and "rotations" not in done.err
    named = ("--rope-scale", "1.5", "--rope-scaling", "model")
    assert cli(*ASK, "--json", *named).record["recipe"]["rope"] == {"rope_scale": 1.5}


@pytest.mark.parametrize("base", ["1", "0.5"])
def test_a_base_is_above_1(base: str, cli: Run, file: Path) -> None:
    done = cli("config", "set", "rope_freq_base", base)
    assert done.code == 2 and "it must be a number above 1 and at most 1e+12" in done.err
    assert cli("config", "set", "rope_freq_base", "1.5").code == 0


@pytest.mark.parametrize(
    "name", ["rope_scale", "rope_freq_base", "yarn_orig_ctx", "draft_rope_scale"]
)
def test_rotations_have_the_bounds_of_the_command_line(name: str, file: Path) -> None:
    most = SETTINGS[name].most or 0
    RuntimeConfig.of(**{name: most})
    with pytest.raises(InvalidValueError, match=name):
        RuntimeConfig.of(**{name: most + 1 if most < 1e9 else 10 * most})
    for value in (int(most) + 1, "inf"):
        file.write_text(f"{name} = {value}\n")
        with pytest.raises(InvalidValueError, match=rf"config.toml: {name} is .* at most"):
            Settings().find(name)


def test_config_says_where_each_is_from(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('threads = 1\nmodel = "tiny"\n')
    monkeypatch.setenv("LOCALSPEC_THREADS", "2")
    shown = settings_shown(cli)
    assert shown["threads"] == {"value": 2, "from": "LOCALSPEC_THREADS"}
    assert shown["model"] == {"value": "tiny", "from": "config.toml"}
    assert shown["ctx"] == {"value": None, "from": "default"}
    assert shown["home"] == {"value": str(file.parent), "from": "LOCALSPEC_HOME"}
    table = cli("config").out
    assert "by model size" not in table and "LOCALSPEC_THREADS" in table
    assert cli("config", "path").out == f"{file}\n"


def test_an_unknown_key_is_named_and_ignored(cli: Run, file: Path) -> None:
    file.write_text('drafter = "suffix"\nzebra = 3\n[chat]\n')
    done = cli(*ASK)
    assert done.code == 0
    assert f"{file}: the unknown key 'drafter' is ignored; did you mean draft?" in done.err
    assert "'zebra' is ignored; the keys are model, draft, ctx," in done.err
    assert "'chat' is ignored" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('threads = "four"', "threads is 'four'; it must be a whole number of at least 1"),
        ("threads = true", "threads is True; it must be a whole number"),
        ("threads = 2.5", "threads is 2.5; it must be a whole number"),
        ("ctx = 1", "ctx is 1; it must be a whole number of at least 2"),
        ("ctx = 99999999999", "ctx is 99999999999; it must be a whole number of at least 2 and at"),
        (
            "threads = 513",
            "threads is 513; it must be a whole number of at least 1 and at most 512",
        ),
        ("model = 3", "model is 3; it must be a text in quotes"),
        ('model = ""', "model is ''; it must be a text in quotes"),
        ('kv_type = "q9"', "kv_type is 'q9'; it must be one of f16, bf16"),
        ("threads = ", "is not valid TOML"),
    ],
)
def test_a_wrong_type_is_refused(cli: Run, file: Path, text: str, said: str) -> None:
    file.write_text(text)
    for command in (ASK, ("config",)):
        done = cli(*command)
        assert (done.code, done.out) == (2, "")
        [line] = done.lines
        assert line.startswith(f"localspec: error: {file}")
        assert said in line
    assert cli("generate", "--help").code == 0


def test_a_wrong_variable_is_refused(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_THREADS", "2x")
    done = cli(*ASK)
    assert done.code == 2
    assert "error: LOCALSPEC_THREADS is '2x'; it must be a whole number" in done.err


def test_a_file_that_cannot_be_read(cli: Run, file: Path) -> None:
    file.write_bytes(b"model = '\xe9'")
    assert cli(*ASK).code == 2
    file.unlink()
    file.mkdir()
    done = cli(*ASK)
    assert done.code == 2
    assert f"{file} cannot be read" in done.err


@pytest.mark.slow
def test_a_drafter_is_not_used_for_another_model_than_its_own(
    cli: Run, file: Path, drafter_path: Path, target_path: Path
) -> None:
    file.write_text(f'model = "somebody/else"\ndraft = "{drafter_path.as_posix()}"\n')
    done = cli(*ASK, "-m", str(BUNDLED))
    assert done.code == 0
    assert f"was set for somebody/else, not for {BUNDLED}, which gets auto" in done.err
    file.write_text(f'draft = "{drafter_path.as_posix()}"\n')
    assert f"draft: {DRAFTER}" in cli(*ASK, "-m", str(target_path)).err
    file.write_text('model = "somebody/else"\ndraft = "lookup"\n')
    assert "draft: lookup" in cli(*ASK, "-m", str(BUNDLED)).err


def parsed(name: str, *others: str) -> dict[str, Any]:
    """What a command is given where the settings say the rest."""
    parent = click.Context(commands, help_option_names=["-h", "--help"])
    command = commands.get_command(parent, name)
    assert command is not None
    defaults: Any = CommandDefaults(name, Settings())
    return command.make_context(name, list(others), parent, default_map=defaults).params


@pytest.mark.parametrize(
    ("arguments", "model", "draft"),
    [
        (["chat"], "one", "suffix,small"),
        (["chat", "-c"], None, "auto"),
        (["chat", "--resume", "3f"], None, "auto"),
        (["chat", "two"], "two", "auto"),
        (["chat", "two", "--draft", "none"], "two", "none"),
        (["plan"], "one", "suffix,small"),
        (["bench"], "one", "small"),
        (["bench", "-m", "two"], "two", None),
        (["audit", "--prompt", "x"], "one", "suffix,small"),
        (["audit", "-"], None, "auto"),
    ],
)
def test_each_command_takes_what_suits_it(
    file: Path, arguments: list[str], model: str | None, draft: str | None
) -> None:
    file.write_text('model = "one"\ndraft = "suffix,small"\nctx = 512\n')
    params = parsed(*arguments)
    assert (params["model"], params["draft"]) == (model, draft)
    assert params.get("context") == (512 if arguments[0] in ("chat", "plan") else None)


@pytest.mark.parametrize(
    ("arguments", "temperature"),
    [
        (["generate", "x"], 0.25),
        (["generate", "x", "--temperature", "0"], 0),
        (["chat"], 0.25),
        (["serve"], 0.25),
        # They have their own, or measure and check.
        (["chat", "-c"], None),
        (["chat", "--resume", "3f"], None),
        (["audit", "--prompt", "x"], None),
        (["bench"], None),
    ],
)
def test_sampling_is_set_for_what_writes_texts(
    file: Path, arguments: list[str], temperature: float | None
) -> None:
    file.write_text("temperature = 0.25\n")
    params = parsed(*arguments)
    assert params.get("temperature") == temperature


def test_sampling_reaches_the_text(cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("temperature", "0.25"), ("top_k", "7"), ("top_p", "0.5")):
        assert cli("config", "set", name, value).code == 0
    monkeypatch.setenv("LOCALSPEC_TOP_K", "9")
    sampling = cli(*ASK, "--top-p", "0.75", "--json").record["recipe"]["sampling"]
    names = ("temperature", "top_k", "top_p", "min_p")
    # The last one is the GGUF's or the default.
    usual = SamplingParams.for_model(read_header(BUNDLED).metadata).min_p
    assert [sampling[name] for name in names] == [0.25, 9, 0.75, pytest.approx(usual)]
    (file.parent / "models.toml").write_text(
        f"[pairs.mine]\ntarget = '{BUNDLED}'\nsampling = {{ top_k = 3, min_p = 0.25 }}\n"
    )
    sampling = cli(*ASK, "-m", "mine", "--json").record["recipe"]["sampling"]
    assert [sampling[name] for name in names] == [0.25, 9, 0.5, 0.25], "a setting, then the pair"
    for name, value in (("temperature", "-1"), ("top_p", "0"), ("min_p", "2"), ("top_k", "0.5")):
        refused = cli("config", "set", name, value)
        assert refused.code == 2 and f"the value of {name} is" in refused.err


@pytest.mark.parametrize(
    ("setting", "most"),
    [
        ("temperature=150", " and at most 100"),
        ("top_k=99999999999", " and at most 2147483647"),
        ("repeat_penalty=1e999", ""),
        ("repeat_penalty=1" + "0" * 400, ""),
    ],
)
def test_what_no_text_could_be_drawn_with_is_not_set(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch, setting: str, most: str
) -> None:
    """It would be refused by every command from then on."""
    name, _, value = setting.partition("=")
    refused = cli("config", "set", name, value)
    assert refused.code == 2 and f"the value of {name} is" in refused.err
    assert f"{most}\n" in refused.err and not file.exists()
    monkeypatch.setenv(f"LOCALSPEC_{name.upper()}", value)
    assert cli(*ASK).code == 2


def test_audit_scores_the_model_that_wrote_the_text(cli: Run, file: Path) -> None:
    file.write_text('model = "somebody/else"\n')
    record = cli(*ASK, "-m", str(BUNDLED), "--json", "--threads", "1").out
    assert cli("audit", "-", stdin=record.encode()).code == 0
    assert cli("audit", "--prompt", "def f(").code == 3


def test_scripts_do_not_read_the_settings(file: Path) -> None:
    import localspec

    file.write_text('model = "no/such"\nthreads = "four"\n')
    with localspec.load(draft="none") as engine:
        assert engine.model.path.stem == BUNDLED.stem


def test_set_and_unset(cli: Run, file: Path) -> None:
    assert "threads is 4 now (config.toml)" in cli("config", "set", "threads", "4").err
    cli("config", "set", "gpu_layers", "-1")
    cli("config", "set", "model", 'C:\\models\\a "b".gguf')
    assert settings_shown(cli)["model"]["value"] == 'C:\\models\\a "b".gguf'
    assert settings_shown(cli)["gpu_layers"]["value"] == -1
    assert "model is the bundled pair now" in cli("config", "unset", "model").err
    assert file.read_text() == "threads = 4\ngpu_layers = -1\n"


def test_a_name_that_is_not_utf_8_is_told(cli: Run, file: Path) -> None:
    """As every letter beyond ASCII where the locale is C."""
    done = cli("config", "set", "model", "caf\udce9.gguf")
    assert done.code == 2 and not file.exists()
    assert "gguf', which is not UTF-8, as the file is; set LOCALSPEC_MODEL, or use a " in done.err


def test_a_file_that_cannot_be_written(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what else sets it."""
    file.write_text("threads = 1\n")

    def full(_source: str, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    done = cli("config", "set", "threads", "2")
    assert done.err == (
        f"localspec: error: {file} cannot be written: No space left on device; set "
        "LOCALSPEC_THREADS, or let LOCALSPEC_HOME name a folder that can be written\n"
    )
    done = cli("config", "unset", "threads")
    assert done.err.endswith("device; let LOCALSPEC_HOME name a folder that can be written\n")
    assert file.read_text() == "threads = 1\n"


def test_help_names_all_settings(cli: Run) -> None:
    shown = cli("config", "--help").out
    assert all(name in shown for name in SETTINGS)


def test_a_model_that_is_not_here_is_set_and_said(cli: Run, file: Path) -> None:
    done = cli("config", "set", "model", "qwen3-8b")
    assert done.code == 0
    assert "model is qwen3-8b now (config.toml), but Qwen/Qwen3-8B-GGUF is not on" in done.err
    assert "localspec pull qwen3-8b fetches it" in done.err
    done = cli("config", "set", "draft", "suffix,/no/such.gguf")
    assert "but there is no model file /no/such.gguf; check the path" in done.err
    assert cli("config", "set", "model", "terminal").err.endswith("(config.toml)\n")


def test_a_file_is_set_with_its_whole_path(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BUNDLED.parent)
    cli("config", "set", "model", BUNDLED.name)
    cli("config", "set", "draft", f"suffix,pard:{BUNDLED.name}")
    shown = settings_shown(cli)
    assert shown["model"]["value"] == str(BUNDLED)
    assert shown["draft"]["value"] == f"suffix,pard:{BUNDLED}"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("model", "nothere", "there is no model 'nothere'; choose a path, user/repo[:quant]"),
        ("model", "qwen3-8", "there is no model 'qwen3-8'; did you mean qwen3-8b"),
        ("draft", "sufix", "there is no model 'sufix'; did you mean suffix?"),
        ("draft", "suffix,nothere", "there is no model 'nothere'; choose auto, none"),
        ("draft", "suffix,none", "draft names none and something else; choose one"),
    ],
)
def test_a_name_that_means_nothing_is_not_set(
    cli: Run, file: Path, name: str, value: str, said: str
) -> None:
    done = cli("config", "set", name, value)
    assert done.code in (2, 3) and said in done.err
    assert not file.exists()


def test_the_error_says_where_a_missing_model_was_set(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('model = "nothere"\ndraft = "suffix,/no/such.gguf"\n')
    assert cli("generate", "hi").err.endswith("localspec ls --all shows (model: config.toml)\n")
    monkeypatch.setenv("LOCALSPEC_MODEL", "terminal")
    assert cli("generate", "hi").err.endswith("check the path (draft: config.toml)\n")
    done = cli("generate", "hi", "-m", "elsewhere", "--draft", "none")
    assert "config.toml" not in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "thread", "4"), "there is no setting 'thread'; did you mean threads?"),
        (("set", "home", "/tmp"), "home is set by the variable LOCALSPEC_HOME alone"),
        (("set", "threads", "four"), "error: the value of threads is 'four'; it must be a"),
        (("set", "threads"), "config set threads 4"),
        (("unset",), "no setting is named; choose model, draft"),
        (("unset", "threads", "4"), "config unset threads"),
        (("get",), "no setting is named; choose model, draft"),
        (("get", "thread"), "there is no setting 'thread'; did you mean threads?"),
        (("get", "threads", "4"), "is written as: config get threads"),
        (("show",), "there is no action 'show'; choose path, get, set, unset"),
        (("threads", "4"), "there is no action 'threads'; localspec config get threads shows"),
    ],
)
def test_config_refuses(cli: Run, file: Path, arguments: tuple[str, ...], said: str) -> None:
    done = cli("config", *arguments)
    assert done.code == 2
    assert said in done.err
    assert not file.exists()


def test_one_value_is_shown_alone_and_where_it_is_set(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = cli("config", "get", "threads")
    default = SETTINGS["threads"].default
    assert (done.code, done.out, done.err) == (0, f"{default}\n", "localspec: threads: default\n")
    file.write_text("threads = 4\n")
    done = cli("config", "get", "threads")
    assert (done.code, done.out, done.err) == (0, "4\n", "localspec: threads: config.toml\n")
    monkeypatch.setenv("LOCALSPEC_THREADS", "3")
    done = cli("config", "get", "threads", "--json")
    assert json.loads(done.out) == {"value": 3, "from": "LOCALSPEC_THREADS"}
    assert cli("config", "get", "home").out == f"{file.parent}\n"


def test_one_of_several_wrong_keys_can_be_set(cli: Run, file: Path) -> None:
    file.write_text('threads = "four"\nctx = 1\n')
    done = cli("config", "set", "threads", "4")
    assert (done.code, done.err) == (0, "localspec: threads is 4 now (config.toml)\n")
    assert file.read_text() == "threads = 4\nctx = 1\n"


def test_a_wrong_variable_is_refused_before_the_file_changes(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_THREADS", "2x")
    done = cli("config", "set", "threads", "4")
    assert done.code == 2 and "LOCALSPEC_THREADS is '2x'" in done.err
    assert not file.exists()


def test_a_link_stays_a_link(cli: Run, file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "localspec.toml"
    real.parent.mkdir()
    real.write_text("# mine\n")
    file.symlink_to(real)
    cli("config", "set", "threads", "4")
    assert file.is_symlink()
    assert real.read_text() == "# mine\nthreads = 4\n"


@pytest.mark.parametrize(
    ("text", "name", "value", "edited"),
    [
        ("", "threads", 4, "threads = 4\n"),
        ("# one\nthreads=1 # two\nctx = 5\n", "threads", 4, "# one\nthreads=4 # two\nctx = 5\n"),
        ('model = "a # b"  # c', "model", "d", 'model = "d"  # c'),
        ("model = 'a'\r\nctx = 5\r\n", "model", "d", 'model = "d"\r\nctx = 5\r\n'),
        ("ctx = 5\n\n[chat]\nthreads = 1\n", "threads", 4, None),
        ("ctx = 5\n[chat]\na = 1\n", "threads", 4, "ctx = 5\nthreads = 4\n[chat]\na = 1\n"),
        ("a = 1\nctx = 5 # x\nb = 2", "ctx", None, "a = 1\nb = 2"),
        ("a = 1", "ctx", None, "a = 1"),
        ("'threads' = 1\n", "threads", 4, None),
        ('a = """\nthreads = 1\n"""\n', "threads", 4, None),
        ("", "model", "a\x7fb", None),
    ],
)
def test_an_edit_changes_nothing_else_or_is_refused(
    text: str, name: str, value: Any, edited: str | None
) -> None:
    if edited is None:
        with pytest.raises(InvalidValueError, match="edit"):
            with_value(text, name, value, "config.toml")
    else:
        assert with_value(text, name, value, "config.toml") == edited


def test_the_types_of_caches_are_those_of_the_engine() -> None:
    assert {*SETTINGS["kv_type"].choices} == {*KV_TYPES}


def test_a_value_that_only_the_model_refuses_is_named_with_its_origin(
    cli: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('tensor_split = "a"')
    done = cli(*ASK)
    assert (done.code, done.out) == (2, "")
    assert "--tensor-split is 'a'" in done.err and "(tensor_split: config.toml)" in done.err
    monkeypatch.setenv("LOCALSPEC_TENSOR_SPLIT", "b")
    assert "(tensor_split: LOCALSPEC_TENSOR_SPLIT)" in cli(*ASK).err
    assert "config.toml" not in cli(*ASK, "--tensor-split", "a").err
