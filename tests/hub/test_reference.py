"""References: what is a repository of the Hub, and what is none."""

import pytest
from huggingface_hub.utils import HFValidationError, validate_repo_id
from hypothesis import assume, given
from hypothesis import strategies as st

from localspec.errors import ModelNotFoundError
from localspec.hub.error_messages import endpoint_name
from localspec.hub.reference import Repository, named_repository, repository

# As names of the Hub are: no dot or hyphen at either end, none of them doubled.
_NAMES = st.from_regex(r"[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*", fullmatch=True).filter(
    lambda name: len(name) <= 40
)
_QUANTS = st.from_regex(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)?", fullmatch=True)


@pytest.mark.slow
@given(_NAMES, _NAMES, st.none() | _QUANTS)
def test_a_reference_is_read_as_it_is_written(user: str, name: str, quant: str | None) -> None:
    assume(not name.lower().endswith((".gguf", ".git")) and user not in ("hf.co", "huggingface.co"))
    reference = Repository(f"{user}/{name}", quant)
    assert repository(str(reference)) == reference
    for prefix in ("hf.co/", "huggingface.co/", "https://huggingface.co/"):
        assert repository(f"{prefix}{reference}") == reference


def _is_allowed(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


@given(st.text("aB1._-", min_size=1, max_size=5), st.text("aB1._-", min_size=1, max_size=5))
def test_names_are_repositories_where_the_hub_allows_them(user: str, name: str) -> None:
    text = f"{user}/{name}"
    assert repository(text) == (Repository(text) if _is_allowed(text) else None)


@pytest.mark.parametrize("ending", [".git", ".gguf"])
def test_two_endings_are_never_those_of_repositories(ending: str) -> None:
    assert repository("user/repo") and repository(f"user/repo{ending}") is None


@pytest.mark.parametrize(
    "text",
    [
        "model.gguf",
        "models/model.gguf",
        "models/model.GGUF",
        "models/model.gguf:Q8_0",
        "./models/model",
        "../models/model",
        "~/models",
        "/models/model",
        "models\\model",
        "C:\\models\\model",
        "three/parts/here",
        "user/repo:",
        "user/repo:Q4:K",
        "user/repo Q8_0",
        "user/-repo",
        "user/re--po",
        "user/re..po",
        "user/",
        "/repo",
        "user",
        "",
    ],
)
def test_paths_and_what_the_hub_does_not_allow_are_no_repositories(text: str) -> None:
    assert repository(text) is None


_QWEN = "Qwen/Qwen3-8B-GGUF"
_FILE = "Qwen3-8B-Q4_K_M.gguf"


@pytest.mark.parametrize(
    ("path", "quant"),
    [
        ("", None),
        ("/", None),
        ("#model-card", None),
        ("?library=llama-cpp-python", None),
        ("?show_file_info=Qwen3-8B-Q4_K_M.gguf", _FILE),
        (".git", None),
        ("/tree/main", None),
        ("/tree/main/", None),
        ("/tree/main/UD-Q4_K_XL", "UD-Q4_K_XL"),
        (f"/tree/main?show_file_info={_FILE}", _FILE),
        ("/tree/main/low?show_file_info=low%2Fm-Q2_K.gguf", "low/m-Q2_K.gguf"),
        (f"/blob/main/{_FILE}?show_file_info={_FILE}", _FILE),
        ("/tree/main:Q8_0", "Q8_0"),
        (f"/blob/main/{_FILE}:latest", _FILE),
        ("/discussions/3:Q8_0", "Q8_0"),
        ("/discussions/3", None),
        ("/commits/main", None),
        (f"/blob/main/{_FILE}", _FILE),
        (f"/raw/main/{_FILE}", _FILE),
        (f"/resolve/main/{_FILE}?download=true", _FILE),
        ("/resolve/main/BF16/Qwen3%208B%20(new)-BF16.gguf", "BF16/Qwen3 8B (new)-BF16.gguf"),
        (":Q4_K_M", "Q4_K_M"),
        (":latest", None),
        (f":{_FILE}", _FILE),
    ],
)
@pytest.mark.parametrize(
    "host",
    [
        "https://huggingface.co/",
        "http://www.huggingface.co/",
        "HTTPS://HuggingFace.co/",
        "huggingface.co/",
        "hf.co/",
        "https://user:s3cret@huggingface.co/",
        "https://huggingface.co:443/",
        "s3cret@hf.co/",
        " https://hf.co/",
    ],
)
def test_addresses_as_people_paste_them(host: str, path: str, quant: str | None) -> None:
    assert repository(f"{host}{_QWEN}{path}\n") == Repository(_QWEN, quant)


@pytest.mark.parametrize(
    ("address", "quant"),
    [
        (f"hf://{_QWEN}", None),
        (f"hf://{_QWEN}:q8_0", "q8_0"),
        (f"hf://models/{_QWEN}", None),
        (f"hf://models/{_QWEN}/low/{_FILE}", f"low/{_FILE}"),
        (f"hf://{_QWEN}/{_FILE}", _FILE),
        (f"hf://{_QWEN}@main/low/{_FILE}", f"low/{_FILE}"),
        (f"hf.co/{_QWEN}/{_FILE}", _FILE),
    ],
)
def test_addresses_of_other_kinds(address: str, quant: str | None) -> None:
    assert repository(address) == Repository(_QWEN, quant)


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("https://hf-mirror.com", "hf-mirror.com"),
        ("http://user:secret@127.0.0.1:8080/hub", "127.0.0.1:8080/hub"),
    ],
)
def test_the_endpoint_in_use_is_the_hub(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, host: str
) -> None:
    addresses = [
        *(f"https://{host}/{_QWEN}/blob/main/{_FILE}", f"http://me:s3cret@{host}/{_QWEN}:{_FILE}"),
        *(f"{host}/{_QWEN}:{_FILE}", f"me:s3cret@{host}/{_QWEN}:{_FILE}"),
    ]
    assert all(repository(each) is None for each in addresses)
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    for each in (*addresses, f"https://huggingface.co/{_QWEN}/blob/main/{_FILE}"):
        assert repository(each) == Repository(_QWEN, _FILE)


def test_another_host_is_told_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://huggingface.co")
    with pytest.raises(ModelNotFoundError) as refusal:
        named_repository(f"https://me:secret@hf-mirror.com/{_QWEN}")
    assert str(refusal.value) == (
        "hf-mirror.com is not the Hub in use (huggingface.co); set "
        "HF_ENDPOINT=https://hf-mirror.com "
        "if it is a mirror of the Hub, or fetch the file yourself and pass its path"
    )


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (f"/blob/main/{_FILE}:Q4", f" names {_FILE} and Q4; leave one of them out"),
        (f"/tree/main/low?show_file_info={_FILE}", f" names {_FILE} and low; leave one"),
        ("@v1/blob/main/x.gguf", " is of the revision v1, and only main"),
    ],
)
def test_no_part_of_an_address_is_dropped(rest: str, said: str) -> None:
    with pytest.raises(ModelNotFoundError) as refusal:
        named_repository(f"https://me:s3cret@hf.co/{_QWEN}{rest}")
    assert f"https://hf.co/{_QWEN}{rest}{said}" in str(refusal.value)


@pytest.mark.parametrize("address", ["https://[x/a/b", "https://hf.co:none/a/b", "https:///a/b"])
def test_an_address_without_a_host_is_told(address: str) -> None:
    with pytest.raises(ModelNotFoundError, match="is the address of no model"):
        named_repository(address)


@pytest.mark.parametrize("endpoint", ["http://[::1", "http://host:none", "nonsense"])
def test_a_broken_endpoint_is_no_host(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert repository(_QWEN) == repository(f"hf.co/{_QWEN}") == Repository(_QWEN)
    with pytest.raises(ModelNotFoundError, match="is not the Hub in use"):
        named_repository("https://other.co/a/b")
    assert endpoint_name()


def test_an_address_of_another_port_or_folder_is_of_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://me:s3cret@127.0.0.1:8080/hub")
    for host in ("127.0.0.1:8081/hub", "127.0.0.1/hub", "127.0.0.1:8080", "hf.co:8080"):
        with pytest.raises(ModelNotFoundError, match="is not the Hub in use") as refusal:
            named_repository(f"http://you:s3cret@{host}/{_QWEN}")
        assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("revision", ["v2", "0123456789abcdef0123456789abcdef01234567"])
def test_another_revision_is_told(revision: str) -> None:
    for address in (
        f"https://huggingface.co/{_QWEN}/blob/{revision}/{_FILE}",
        f"hf://{_QWEN}@{revision}/{_FILE}",
    ):
        with pytest.raises(ModelNotFoundError) as refusal:
            named_repository(address)
        assert f"{address} is of the revision {revision}, and only main" in str(refusal.value)
        assert f"name {_QWEN}:{_FILE}" in str(refusal.value)


@pytest.mark.parametrize(
    "address",
    [
        "https://huggingface.co/gpt2",
        "https://huggingface.co/datasets/user/data",
        "https://huggingface.co/spaces/user/space",
        "https://huggingface.co/collections/Qwen/qwen3",
        "https://huggingface.co/papers/2309.06180",
        "https://huggingface.co/buckets/user/bucket",
        "https://huggingface.co/kernels/user/kernel",
        "https://huggingface.co/organizations/user/activity",
        "https://huggingface.co/models/user",
        "hf://datasets/user/data",
        "hf://buckets/user/bucket/model.gguf",
        "https://huggingface.co/user/repo/unknown",
        "https://huggingface.co/user/re--po",
        "hf.co/user",
    ],
)
def test_an_address_of_no_model_is_told(address: str) -> None:
    with pytest.raises(ModelNotFoundError, match="is the address of no model; paste that of a"):
        named_repository(address)
    assert repository(address) is None
