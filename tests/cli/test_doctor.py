"""`localspec doctor`, run: sound and broken installations, no socket, no token."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SEVERITIES = ["ok", "note", "warning", "error"]


def run(
    home: Path, *arguments: str, first: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Doctor in a process of its own. first: a folder whose modules come before all others."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    path = {"PYTHONPATH": str(first)} if first else {}
    return subprocess.run(
        [sys.executable, "-m", "localspec", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **path, "LOCALSPEC_HOME": str(home), "HF_HOME": str(home), **environment},
    )


def findings(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def of(topic: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in found if each["topic"] == topic)


def package(folder: Path, name: str, code: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(code)
    return folder


@pytest.mark.slow
def test_a_sound_installation(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["exit_code"] == 0
    assert told["worst"] == max(
        (each["severity"] for each in told["findings"]), key=SEVERITIES.index
    )
    for each in told["findings"]:
        assert each.keys() == {"severity", "topic", "text", "remedy"}
        assert each["remedy"] or each["severity"] in ("ok", "note")
    assert of("trial", told["findings"])["severity"] == "ok"
    assert str(tmp_path) in of("config", told["findings"])["text"]
    assert of("llama.cpp", told["findings"])["severity"] == "note"  # built without RPC


@pytest.mark.slow
def test_lines_for_people(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert all(line.split()[0] in {*SEVERITIES, "->"} for line in lines)
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b[32mok" in run(tmp_path, FORCE_COLOR="1").stdout
    assert "\x1b" not in run(tmp_path, FORCE_COLOR="1", NO_COLOR="1").stdout


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "signal 6"),
        ("raise ImportError('libllama.so is gone')", "libllama.so is gone"),
        ("__version__ = '0.0.1'", "llama_log_callback"),
    ],
    ids=["crashes", "missing", "too old"],
)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to tell")
def test_a_broken_library_is_a_finding(tmp_path: Path, code: str, said: str) -> None:
    done = run(tmp_path, "--json", first=package(tmp_path / "broken", "llama_cpp", code))
    assert done.returncode == 5
    assert done.stderr == ""
    found = of("llama.cpp", findings(done))
    assert found["severity"] == "error"
    assert said in found["text"]
    assert "pip install --force-reinstall" in found["remedy"]
    assert of("hub", findings(done))["severity"] == "ok"


def test_a_broken_hub_is_a_finding(tmp_path: Path) -> None:
    broken = package(tmp_path / "broken", "huggingface_hub", "raise ValueError('half installed')")
    done = run(tmp_path, "--json", first=broken)
    assert done.returncode == 1
    found = findings(done)
    assert "half installed" in of("hub", found)["text"]
    assert of("processor", found)["severity"] in ("ok", "note", "warning")  # llama.cpp is sound
    errors = [each["topic"] for each in found if each["severity"] == "error"]
    assert errors == ["hub", "trial"]  # an engine needs it too
    assert of("memory", findings(done))["severity"] in ("ok", "warning")


def test_a_models_toml_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("[pairs")
    done = run(tmp_path, "--json")
    errors = [each["topic"] for each in findings(done) if each["severity"] == "error"]
    assert errors == ["pairs", "trial"]  # an engine reads there how to draw
    assert "is not valid TOML" in of("trial", findings(done))["text"]
    assert done.returncode == 2


@pytest.mark.parametrize("threads", [None, "abc"], ids=["in the file", "in a variable"])
def test_settings_that_cannot_be_used(tmp_path: Path, threads: str | None) -> None:
    (tmp_path / "config.toml").write_text("" if threads else 'threads = "many"\n')
    done = run(tmp_path, "--json", **({"LOCALSPEC_THREADS": threads} if threads else {}))
    [found] = [each for each in findings(done) if each["severity"] == "error"]
    assert (found["topic"], done.returncode) == ("settings", 2)
    assert ("LOCALSPEC_THREADS" if threads else "config.toml") in found["text"]
    assert found["remedy"] == "correct or remove it"


def test_the_variable_of_a_cache_that_cannot_be_used(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", HF_HUB_CACHE=os.devnull)
    found = of("hub cache", findings(done))
    assert found["severity"] == "warning" and "HF_HUB_CACHE" in found["remedy"]


_WATCH = """
import sys
def watch(event, arguments):
    if event.startswith("socket."):
        with open({log!r}, "a") as log:
            log.write(event + "\\n")
sys.addaudithook(watch)
"""


@pytest.mark.slow
def test_no_socket_is_opened_and_no_token_shown(tmp_path: Path) -> None:
    watching, log = tmp_path / "watching", tmp_path / "log"
    watching.mkdir()
    (watching / "sitecustomize.py").write_text(_WATCH.format(log=str(log)))
    secret = "hf_secretsecretsecret"
    (tmp_path / "token").write_text(secret)
    arguments = ["--json"]
    done = run(
        tmp_path, *arguments, first=watching, HF_TOKEN=secret, HF_DEBUG="1", LOCALSPEC_DEBUG="1"
    )
    assert done.returncode == 0
    assert secret not in done.stdout + done.stderr
    assert of("hub token", findings(done))["text"].endswith("HF_TOKEN")
    assert not log.exists(), log.read_text()
    subprocess.run(
        [sys.executable, "-c", "import socket; socket.socket().close()"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(watching)},
    )
    assert log.exists()  # it would have been seen
