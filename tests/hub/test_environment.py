"""Variables of the environment that are set wrongly, or to what huggingface_hub has given up."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hub import Hub
from fakes.hub_client import Child, asking, fetch, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE
from huggingface_hub import constants

import localspec
from localspec.errors import HubError, InvalidValueError
from localspec.hub.reference import Repository

TARGET = PYCODE.target
SNAKE = Repository("zoo/snake-GGUF")
# Every command that names a model imports this.
IMPORT = """
from localspec.errors import LocalspecError
try:
    from localspec.hub import store
    from huggingface_hub import constants
except LocalspecError as error:
    print(error)
    raise SystemExit(error.exit_code)
print(constants.ENDPOINT)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({SNAKE.id: Repo({"snake-Q8_0.gguf": TARGET})}) as hub:
        yield hub


@pytest.fixture
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint, tmp_path) as patch:
        yield patch


def imported(child: Child, **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = {**child.environment, **environment}
    return subprocess.run(
        [sys.executable, "-c", IMPORT], env=variables, capture_output=True, encoding="utf-8"
    )


@pytest.mark.parametrize("name", ["HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"])
@pytest.mark.parametrize("value", ["2.5", "30s", " ", "-1"])
def test_a_time_that_is_none_is_named(hub: Hub, tmp_path: Path, name: str, value: str) -> None:
    done = imported(Child(hub, tmp_path), **{name: value})
    assert done.returncode == InvalidValueError.exit_code and not done.stderr
    assert done.stdout.startswith(f"{name} is {value!r}, which is no whole number of seconds")


def test_a_time_is_taken(hub: Hub, tmp_path: Path) -> None:
    assert imported(Child(hub, tmp_path), HF_HUB_DOWNLOAD_TIMEOUT="30").returncode == 0


def test_the_transfer_of_former_versions_is_no_warning(hub: Hub, tmp_path: Path) -> None:
    done = imported(Child(hub, tmp_path), HF_HUB_ENABLE_HF_TRANSFER="1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["HF_ENDPOINT", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"])
def test_an_empty_setting_is_none(hub: Hub, tmp_path: Path, name: str) -> None:
    done = imported(Child(hub, tmp_path), **{"HF_ENDPOINT": "", name: ""})
    assert (done.returncode, done.stdout) == (0, "https://huggingface.co\n")


def test_an_endpoint_without_a_scheme_says_so(tmp_path: Path) -> None:
    with asking("hub.test", tmp_path):
        message = why_not(HubError, SNAKE)
    assert message == "hub.test cannot be asked; let HF_ENDPOINT begin with https:// or http://"


def test_a_file_of_certificates_that_is_not_there_is_named(client: pytest.MonkeyPatch) -> None:
    client.setenv("SSL_CERT_FILE", "/nowhere/certificate.pem")
    message = why_not(HubError, SNAKE)
    assert message.startswith("SSL_CERT_FILE names /nowhere/certificate.pem, and there is no such")


def test_the_variable_that_forbids_to_fetch_is_named(hub: Hub, tmp_path: Path) -> None:
    code, _, err = Child(hub, tmp_path)(SNAKE.id, TRANSFORMERS_OFFLINE="1")
    assert code == HubError.exit_code
    assert "TRANSFORMERS_OFFLINE forbids it; unset it" in err and "HF_HUB" not in err


@pytest.mark.usefixtures("client")
def test_a_token_file_that_is_no_text_is_named() -> None:
    Path(constants.HF_TOKEN_PATH).write_bytes(b"hf_\xff\xfe")
    message = why_not(HubError, SNAKE)
    assert message.startswith(f"the token in {constants.HF_TOKEN_PATH} cannot be read")
    assert "hf auth login" in message


def test_a_token_that_cannot_be_had_is_explained(client: pytest.MonkeyPatch) -> None:
    client.setenv("HF_OIDC_RESOURCE", "user/repo")
    client.delenv("HF_OIDC_ID_TOKEN", raising=False)
    client.delenv("GITHUB_ACTIONS", raising=False)
    assert "HF_OIDC_RESOURCE" in why_not(HubError, SNAKE)


@pytest.mark.usefixtures("client")
def test_the_hub_learns_the_version(hub: Hub) -> None:
    fetch(SNAKE)
    asked = [each.agent for each in hub.requests if "/agent" not in each.path]
    assert asked and {f"localspec/{localspec.__version__}" in agent for agent in asked} == {True}
