"""Why the Hub does not give a model to whoever asks, and what to do about it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import hub as fake_hub
from fakes.hub import Hub, Refusal
from fakes.hub_client import asking, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE

from localspec.errors import HubError, ModelNotFoundError
from localspec.hub.error_messages import RefusedError
from localspec.hub.listing import look_up, require_access
from localspec.hub.reference import Repository

DRAFTER = PYCODE.drafter
SECRET, STRANGER = "hf_verySecretToken", "hf_somebodyElses"
WORM, GATED = Repository("zoo/worm-GGUF"), Repository("zoo/gated-GGUF")


@pytest.fixture
def hub() -> Iterator[Hub]:
    repos = {
        WORM.id: Repo({"worm-Q4_0.gguf": DRAFTER}, token=SECRET),
        GATED.id: Repo({"gated-Q4_0.gguf": DRAFTER}, gated=True, token=SECRET),
    }
    with Hub(repos, strangers=[STRANGER]) as hub:
        yield hub


@pytest.fixture(autouse=True)
def client(hub: Hub, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    with asking(hub.endpoint, tmp_path) as patch:
        yield patch


def refusing(client: pytest.MonkeyPatch, *refusal: Any, files: bool = False) -> None:
    """Let the Hub refuse this way whatever is asked, or files alone."""
    right = fake_hub._HubHandler.answer

    def answer(self: Any, token: str | None) -> None:
        if "/agent" not in self.path and (not files or "/resolve/" in self.path):
            raise Refusal(*refusal)
        right(self, token)

    client.setattr(fake_hub._HubHandler, "answer", answer)


def test_a_refused_token_is_named_however_it_is_worded(client: pytest.MonkeyPatch) -> None:
    client.setenv("HF_TOKEN", SECRET)
    refusing(client, 401, "", "User Access Token is expired")
    message = why_not(HubError, WORM)
    assert "does not accept the token; log in with hf auth login" in message


def test_a_token_that_does_not_see_a_model_is_named(client: pytest.MonkeyPatch) -> None:
    client.setenv("HF_TOKEN", STRANGER)
    message = why_not(ModelNotFoundError, Repository("zoo/nothing-GGUF"))
    assert "check the name, or see that the token in use may read it" in message


def test_a_token_without_the_right_to_read_gated_models_is_named(
    client: pytest.MonkeyPatch,
) -> None:
    client.setenv("HF_TOKEN", STRANGER)
    refusing(client, 403, "", "Please enable access to public gated repositories", files=True)
    message = why_not(RefusedError, WORM)
    assert "refuses zoo/worm-GGUF (403), and the token in use has no access to it" in message
    assert "the token may read gated repositories" in message and "log in" not in message


def test_a_disabled_repository_asks_for_no_token(hub: Hub) -> None:
    hub.repos[WORM.id].disabled = True
    message = why_not(RefusedError, WORM)
    assert message.startswith(f"{WORM.id} is disabled") and "choose another" in message
    assert "log in" not in message


@pytest.mark.parametrize(("token", "told"), [(None, True), (SECRET, False)])
def test_too_many_requests_without_a_token_are_fewer(
    hub: Hub, client: pytest.MonkeyPatch, token: str | None, told: bool
) -> None:
    if token:
        client.setenv("HF_TOKEN", token)
    hub.faults.statuses["hub"], hub.faults.retry_after = [429], 3000
    message = why_not(HubError, WORM)
    assert "in 3000 s" in message
    assert ("it allows more with a token: log in with hf auth login" in message) == told


def test_a_storage_with_too_many_requests_asks_for_no_token(hub: Hub) -> None:
    hub.faults.statuses["cdn"], hub.faults.retry_after = [429], 3000
    message = why_not(HubError, WORM)
    assert "in 3000 s" in message and "token" not in message


def test_whether_a_gated_model_may_be_fetched_is_known_before(
    hub: Hub, client: pytest.MonkeyPatch
) -> None:
    require_access(look_up(WORM))
    assert not any("/resolve/" in request.path for request in hub.requests)
    with pytest.raises(RefusedError, match="gated"):
        require_access(look_up(GATED))
    client.setenv("HF_TOKEN", SECRET)
    require_access(look_up(GATED))
    assert hub.sent == 0
