"""Images and sounds in every protocol, for a model that reads images."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from anthropic import Anthropic
from fakes.projectors import picture, seeing_model, tiny_projector, write_projector
from fakes.served import PATIENCE, Served, serving, wait_for
from fakes.tiny import TURNS, write_tiny
from openai import OpenAI

import localspec
from localspec.engine.engine import Engine
from localspec.engine.media_marks import media_mark
from localspec.engine.prompt import warn_left_out
from localspec.errors import InvalidValueError
from localspec.llama import media
from localspec.server.chat_input import ChatInput
from localspec.server.errors import ApiError
from localspec.server.options import TextSettings
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool

FILES = [picture(seed=seed) for seed in range(3)]
PICTURES = [b64encode(each).decode() for each in FILES]
URLS = [f"data:image/png;base64,{each}" for each in PICTURES]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
# The tokens of a user's message with an image and "what", and of the beginning of the answer.
TOKENS = 40
SAMPLED: Any = {"temperature": 1, "seed": 7, "max_tokens": 24}
WHAT: Any = {"type": "text", "text": "what"}
NAMES = ("eye", "words")


def image(at: int = 0) -> Any:
    return {"type": "image_url", "image_url": {"url": URLS[at], "detail": "low"}}


def block(at: int = 0) -> Any:
    source = {"type": "base64", "media_type": "image/png", "data": PICTURES[at]}
    return {"type": "image", "source": source}


def asked(*parts: Any) -> Any:
    return {"role": "user", "content": list(parts)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with its projector beside it, and one that reads text only."""
    folder = tmp_path_factory.mktemp("images")
    for seed, name in enumerate(NAMES):
        file = folder / f"{name}.gguf"
        write_tiny(file, "llama", quantised=False, template=TURNS, context=2048, seed=seed)
    (folder / "mmproj-eye.gguf").symlink_to(tiny_projector("llama"))
    return folder


@pytest.fixture(scope="module")
def seeing(own_cache: None, folder: Path) -> Iterator[Served]:
    options = ("--threads", "1", "--draft", "suffix", "--parallel", "3")
    with serving(str(folder / "eye.gguf"), *options) as running:
        yield running


@pytest.fixture(scope="module")
def plain(own_cache: None, folder: Path) -> Iterator[Engine]:
    """The same model, without a server and without drafters."""
    with localspec.load(folder / "eye.gguf", draft="none", threads=1) as engine:
        yield engine


def text(served: Served, *messages: Any, **options: Any) -> str:
    answer = served.post(CHAT, {"messages": messages, **SAMPLED, **options})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def tokens(served: Served, *messages: Any) -> int:
    answer = served.post(f"{CHAT}/input_tokens", {"messages": messages})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["input_tokens"])


def error(served: Served, path: str, body: Any) -> str:
    answer = served.post(path, {"max_tokens": 4, **body})
    assert answer.status_code == 400, answer.text
    found = answer.json()["error"]
    message = str(found if isinstance(found, str) else found["message"])
    assert "\n" not in message
    return message


def test_the_text_is_that_of_the_engine(seeing: Served, plain: Engine) -> None:
    question = {"role": "user", "content": [{"type": "image", "image": FILES[0]}, WHAT]}
    expected = plain.generate([question], **SAMPLED)
    assert expected.stats.prompt_tokens == TOKENS
    texts = {
        text(seeing, asked(image(), WHAT), localspec=each)
        for each in ({}, {"draft": "none"}, {"depth": 4})
    }
    assert texts == {expected.text}
    assert text(seeing, asked(image(1), WHAT)) != expected.text
    with OpenAI(base_url=f"{seeing.url}/v1", api_key="none", max_retries=0) as client:
        messages = [asked(image(), WHAT)]
        parts = client.chat.completions.create(
            model="eye",
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            **SAMPLED,
        )
        *said, last = parts
    assert "".join(part.choices[0].delta.content or "" for part in said) == expected.text
    assert last.usage and last.usage.prompt_tokens == TOKENS
    # It was read before, and is not read again.
    assert last.usage.prompt_tokens_details.cached_tokens == TOKENS - 1  # type: ignore[union-attr]


def test_openai_responses(seeing: Served) -> None:
    parts: Any = [
        {"type": "input_image", "image_url": URLS[0], "detail": "auto"},
        {"type": "input_text", "text": "what"},
    ]
    with OpenAI(base_url=f"{seeing.url}/v1", api_key="none", max_retries=0) as client:
        first = client.responses.create(model="eye", input=[asked(*parts)], max_output_tokens=16)
        assert first.usage and first.usage.input_tokens == TOKENS
        then: Any = {"previous_response_id": first.id, "max_output_tokens": 16}
        second = client.responses.create(model="eye", input="and now", **then)
        assert second.usage
        assert second.usage.input_tokens_details.cached_tokens >= TOKENS
        output: Any = {"type": "function_call_output", "call_id": "c", "output": parts}
        call: Any = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        count = client.responses.input_tokens.count
        seen = count(model="eye", input=[call, output]).input_tokens
        output["output"] = parts[1:]
        assert seen > count(model="eye", input=[call, output]).input_tokens + 16
    assert "media" not in seeing.get(f"{RESPONSES}/{second.id}").text


def test_anthropic(seeing: Served) -> None:
    with Anthropic(base_url=seeing.url, api_key="none", max_retries=0) as client:
        answer = client.messages.create(model="eye", max_tokens=4, messages=[asked(block(), WHAT)])
        read = answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)
        count = client.messages.count_tokens
        assert read == TOKENS
        assert count(model="eye", messages=[asked(block(), WHAT)]).input_tokens == TOKENS
        use: Any = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
        result: Any = {"type": "tool_result", "tool_use_id": "t", "content": [block(), WHAT]}
        messages: Any = [asked(WHAT), {"role": "assistant", "content": [use]}, asked(result)]
        seen = count(model="eye", messages=messages).input_tokens
        result["content"] = [WHAT]
        assert seen > count(model="eye", messages=messages).input_tokens + 16


def test_ollama(seeing: Served) -> None:
    options: Any = {"temperature": 1, "seed": 7, "num_predict": 24}
    client = ollama.Client(seeing.url)
    message = ollama.Message(role="user", content="what", images=[ollama.Image(value=FILES[0])])
    answer = client.chat("eye", [message], options=options)
    assert answer.prompt_eval_count == TOKENS
    assert answer.message.content == text(seeing, asked(image(), WHAT))
    streamed = client.generate("eye", "what", images=[PICTURES[0]], options=options, stream=True)
    assert "".join(part.response for part in streamed) == answer.message.content
    assert "images" in error(seeing, "/api/generate", {"prompt": "a", "raw": True, "images": ["a"]})
    client._client.close()


def test_llama_servers_own_prompt(seeing: Served) -> None:
    marker = seeing.get("/props").json()["media_marker"]
    prompt = {"prompt_string": f"u {marker}what</s><s>a ", "multimodal_data": [PICTURES[0]]}
    answer = seeing.post("/completion", {"prompt": prompt, **SAMPLED, "n_predict": 24}).json()
    assert answer["tokens_evaluated"] == TOKENS
    assert answer["content"] == text(seeing, asked(image(), WHAT))
    assert "media" not in answer["prompt"]
    listed = seeing.post("/completion", {"prompt": [prompt, "u x"], "n_predict": 1}).json()
    assert [each["tokens_evaluated"] > TOKENS - 1 for each in listed] == [True, False]
    first = {"prompt_string": f"{marker}what", "multimodal_data": [PICTURES[0]]}
    read = seeing.post("/completion", {"prompt": first, "n_predict": 1}).json()["tokens_evaluated"]
    # As with any text, BOS is in front.
    assert read == len(seeing.post("/tokenize", {"content": "what"}).json()["tokens"]) + 1 + 16
    last = {**first, "prompt_string": f"what{marker}"}
    assert "ends with an image" in error(seeing, "/completion", {"prompt": last})
    more = {**first, "multimodal_data": PICTURES}
    assert "3 files, and the text 1 <__media__>" in error(seeing, "/completion", {"prompt": more})
    broken = {**first, "multimodal_data": ["é"]}
    assert "prompt.multimodal_data[0] is" in error(seeing, "/completion", {"prompt": broken})


def test_what_clients_ask_about(seeing: Served) -> None:
    assert seeing.get("/props").json()["modalities"] == {"vision": True, "audio": False}
    models = seeing.get("/v1/models").json()
    assert models["data"][0]["architecture"]["input_modalities"] == ["text", "image"]
    assert models["models"][0]["capabilities"] == ["completion", "multimodal"]
    assert "vision" in seeing.post("/api/show", {"model": "eye"}).json()["capabilities"]
    assert "vision" in seeing.get("/api/tags").json()["models"][0]["capabilities"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://a.example/cat.png", "localspec fetches no addresses"),
        ("file:///etc/passwd", "localspec fetches no addresses"),
        ("/etc/passwd", "'/etc/passwd', which is no base64"),
        ("/etc/passwd1", "that is no JPEG, PNG, GIF or BMP"),
        ("../cat.png", "which is no base64"),
        (b64encode(b"RIFF\0\0\0\0WEBPVP8 ").decode(), ": a WebP image was given; convert it to"),
        ("data:image/png,abc", "give its data in base64"),
        ("data:image/png;base64,", "is empty"),
        (URLS[0][:-40], "cannot be read"),
        (None, "is None; give the file's contents"),
        ({"url": {"url": URLS[0]}}, "give the file's contents"),
        ("data:image/bmp;base64," + b64encode(b"BM" + b"\x7f" * 60).decode(), "smaller than 64"),
        ("data:;base64," + b64encode(b"fLaC" + bytes(60)).decode(), "hears nothing"),
    ],
)
def test_what_is_refused(seeing: Served, url: Any, said: str) -> None:
    part = {"type": "image_url", "image_url": url if isinstance(url, dict) else {"url": url}}
    message = error(seeing, CHAT, {"messages": [asked(WHAT, part, WHAT)]})
    assert message.startswith("messages[0].content[1]") and said in message


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (
            RESPONSES,
            {"input": [asked({"type": "input_image", "file_id": "f"})]},
            "input[0].content[0].file_id is 'f'; no files are kept here",
        ),
        (
            MESSAGES,
            {"messages": [asked({"type": "image", "source": {"type": "file", "file_id": "f"}})]},
            "messages[0].content[0].source.file_id is 'f'; no files are kept here",
        ),
        (
            MESSAGES,
            {"messages": [asked({"type": "image", "source": {"type": "url", "url": "http://a"}})]},
            "messages[0].content[0].source.url is 'http://a'; localspec fetches no addresses",
        ),
        (
            "/api/chat",
            {"messages": [{**asked(), "content": "a", "images": ["é"]}]},
            "[0].images[0]",
        ),
        ("/api/generate", {"prompt": "a", "images": [5]}, "images[0] is 5"),
        (
            CHAT,
            {"messages": [asked({"type": "image", "path": "/etc/passwd"})]},
            "messages[0].content[0].image is None",
        ),
        (
            CHAT,
            {"messages": [asked({"type": "input_audio", "input_audio": {"data": "UklGRg=="}})]},
            "it must be text or an image; this model reads nothing else",
        ),
        ("/v1/completions", {"prompt": [1, -5, 2]}, "-5"),
        ("/v1/completions", {"prompt": [1, 5, -2]}, "-2"),
        ("/detokenize", {"tokens": [-5]}, "-5"),
    ],
)
def test_what_other_protocols_refuse(
    seeing: Served, path: str, body: dict[str, Any], said: str
) -> None:
    assert said in error(seeing, path, body)


def test_a_file_of_an_earlier_turn_that_cannot_be_read_ends_no_conversation(
    seeing: Served,
) -> None:
    gone = {"type": "image_url", "image_url": {"url": "http://a.example/cat.png"}}
    answer = {"role": "assistant", "content": "no"}
    body = {"messages": [asked(gone, WHAT), answer, asked(WHAT)]}
    prompt = seeing.post("/apply-template", body).json()["prompt"]
    assert "[image_url left out: it cannot be read]\nwhat" in prompt
    told = "left out of a conversation: messages[0]"
    wait_for(lambda: any(told in line for line in seeing.lines))


def test_a_later_turn_reads_no_image_again(seeing: Served) -> None:
    turns = [asked(image(2), WHAT)]
    first = text(seeing, *turns, max_tokens=6)
    turns += [{"role": "assistant", "content": first}, asked(image(1), WHAT, image(2))]
    whole = seeing.post(CHAT, {"messages": turns, **SAMPLED}).json()
    usage = whole["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= TOKENS
    assert usage["prompt_tokens"] == tokens(seeing, *turns) > TOKENS + 2 * 16
    again = seeing.post(CHAT, {"messages": turns, **SAMPLED}).json()
    assert again["choices"][0]["message"] == whole["choices"][0]["message"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_progress_counts_the_rows(seeing: Served) -> None:
    body = {"messages": [asked(WHAT, image(), image(1), WHAT)], **SAMPLED, "return_progress": True}
    streamed = seeing.post(CHAT, {**body, "stream": True}).text
    assert f'"total": {tokens(seeing, *body["messages"])}' in streamed  # type: ignore[misc]


def require_as_alone(served: Served, plain: Engine) -> None:
    """Conversations beside others have the texts of an engine, also where some are left."""
    conversations: list[Any] = [
        [asked(image(0), WHAT)],
        [{"role": "user", "content": "no image at all " * 8}],
        [asked(image(1), WHAT), {"role": "assistant", "content": "b"}, asked(WHAT, image(2), WHAT)],
        [asked(WHAT, image(0), image(1), image(2), WHAT)],
    ]

    def known(message: Any) -> Any:
        if isinstance(message["content"], str):
            return message
        parts = [
            {"type": "image", "image": FILES[URLS.index(each["image_url"]["url"])]}
            if "image_url" in each
            else each
            for each in message["content"]
        ]
        return {**message, "content": parts}

    model = served.get("/v1/models").json()["data"][0]["id"]
    expected = [plain.generate([*map(known, each)], **SAMPLED).text for each in conversations]
    assert len(set(expected)) == len(expected)
    with OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:

        def streamed(number: int) -> str:
            parts = client.chat.completions.create(
                model=model,
                messages=conversations[number % 4],
                stream=True,
                **{**SAMPLED, "max_tokens": 24 if number < 12 else 300},
            )
            said = ""
            for part in parts:
                said += part.choices[0].delta.content or ""
                if number >= 12 and said:
                    parts.close()
                    break
            return said

        numbers = [0, 1, 12, 2, 3, 13, 4, 14, 5, 6, 15, 7, 8, 9, 10, 11]
        with ThreadPoolExecutor(4) as threads:
            found = dict(zip(numbers, threads.map(streamed, numbers), strict=True))
    for number in range(12):
        assert found[number] == expected[number % 4]
    served.wait_until_free()
    assert text(served, *conversations[2]) == expected[2]


def test_conversations_beside_others_are_as_alone(seeing: Served, plain: Engine) -> None:
    require_as_alone(seeing, plain)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma3", "qwen35"])
def test_all_kinds_of_images_are_as_alone(own_cache: None, family: str) -> None:
    """Rows that attend to all others of the image, and several positions for each row."""
    tiny_projector(family)
    file = seeing_model(family)
    options = ("--threads", "1", "--draft", "suffix", "--parallel", "3")
    with (
        localspec.load(file, draft="none", threads=1) as engine,
        serving(str(file), *options) as served,
    ):
        require_as_alone(served, engine)


def test_a_client_that_leaves_while_an_image_is_encoded(tmp_path: Path, own_cache: None) -> None:
    write_tiny(tmp_path / "a.gguf", "llama", quantised=False, template=TURNS, context=4096)
    write_projector(tmp_path / "mmproj-a.gguf", "mlp", side=14 * 56)
    with serving(str(tmp_path / "a.gguf"), "--threads", "1", "--draft", "none") as served:
        body = {
            "messages": [asked(image(), WHAT)],
            "max_tokens": 3000,
            "ignore_eos": True,  # else some texts are over before they are looked for
            "stream": True,
            "return_progress": True,
        }
        with httpx.stream("POST", served.url + CHAT, json=body, timeout=PATIENCE) as answer:
            lines = answer.iter_lines()  # kept: without it httpx closes the connection
            assert "chat.completion.chunk" in next(lines)
            wait_for(lambda: served.busy)
        wait_for(lambda: any("cancelled" in line for line in served.lines))
        wait_for(lambda: not served.busy)
        assert text(served, {"role": "user", "content": "a"})


def test_a_file_that_would_end_the_process_is_refused(tmp_path: Path, own_cache: None) -> None:
    """And conversations go on without the image."""
    write_tiny(tmp_path / "a.gguf", "llama", quantised=False, template=TURNS, context=512)
    write_projector(tmp_path / "mmproj-a.gguf", "mlp", lost="mm.2.weight")
    with serving(str(tmp_path / "a.gguf"), "--threads", "1", "--draft", "none") as served:
        for _ in range(2):
            answer = served.post(CHAT, {"messages": [asked(image(), WHAT)], "max_tokens": 4})
            assert answer.status_code == 500
            said = answer.json()["error"]["message"]
            assert said.startswith("mmproj-a.gguf cannot be used: llama.cpp ended (")
            assert said.endswith("; download it again, or name another with --mmproj")
        again = [asked(image(), WHAT), {"role": "assistant", "content": "a"}, asked(WHAT)]
        assert text(served, *again)


def test_stored_answers_keep_files_once(seeing: Served) -> None:
    """Each turn sends the image again; a client lists it where it asks for it."""
    part = {"type": "input_image", "image_url": URLS[1], "detail": "low"}
    sound = {"type": "input_audio", "input_audio": {"data": "QUJD" * 100, "format": "wav"}}
    other = {"type": "input_image", "image_url": "data:image/png;base64,?" + "a" * 200}
    output = {"type": "function_call_output", "call_id": "a", "output": [part]}
    given = [asked(part), {"role": "assistant", "content": "a"}, asked(sound, other), output]
    body = {"input": [*given, asked(WHAT)], "max_output_tokens": 16}
    first = seeing.post(RESPONSES, body)
    assert first.status_code == 200, first.text
    include: Any = ["message.input_image.image_url"]
    with OpenAI(base_url=f"{seeing.url}/v1", api_key="none", max_retries=0) as client:
        items, name = client.responses.input_items.with_raw_response, first.json()["id"]
        listed = items.list(name, order="asc").http_response.json()["data"]
        whole = items.list(name, order="asc", include=include).http_response.json()["data"]
    assert listed[0]["content"] == [{**part, "image_url": None}]
    assert listed[2]["content"] == [sound, {**other, "image_url": None}]
    assert listed[3]["output"] == [{**part, "image_url": None}]
    assert whole[0]["content"] == [part] and whole[3]["output"] == [part]
    assert whole[2]["content"] == [sound, other]
    assert "<|media" not in str(whole) + str(listed)


def test_nothing_gives_a_mark_away(seeing: Served) -> None:
    body = {"messages": [asked(image(), WHAT)]}
    answer = seeing.post("/apply-template", body).json()
    assert answer["prompt"] == "<s>u [image]what</s><s>a "
    error = InvalidValueError(f"the template takes no {media_mark(FILES[0])}")
    assert ApiError.of(error).message == "the template takes no [image]"
    for line in seeing.lines:
        assert "<|media" not in line and PICTURES[0][:20] not in line


def test_models_take_turns(own_cache: None, folder: Path) -> None:
    """An image of a stored conversation is words for a model that reads text only."""
    models = [str(folder / f"{name}.gguf") for name in NAMES]
    with serving(*models, "--threads", "1", "--draft", "none") as both:
        reads = [
            each["architecture"]["input_modalities"]
            for each in both.get("/v1/models").json()["data"]
        ]
        assert reads == [["text", "image"], ["text"]]
        part = {"type": "input_image", "image_url": URLS[0]}
        body = {"model": "eye", "input": [asked(part)], "max_output_tokens": 16}
        first = both.post(RESPONSES, body).json()
        then = {"previous_response_id": first["id"], "input": "and", "max_output_tokens": 16}
        for name in ("words", "eye"):
            answer = both.post(RESPONSES, {"model": name, **then})
            assert answer.status_code == 200, answer.text
        assert both.get("/props").json()["modalities"]["vision"]
        said = error(both, CHAT, {"model": "words", "messages": [asked(image(), WHAT)]})
        assert "it must be text; this model reads nothing else" in said and "mmproj" in said


@pytest.mark.slow
def test_what_is_kept_of_a_text_with_an_image_is_read_again(
    own_cache: None, folder: Path, tmp_path: Path
) -> None:
    options = (str(folder / "eye.gguf"), "--threads", "1", "--draft", "none")
    found = []
    for _ in range(2):
        with serving(*options, LOCALSPEC_HOME=str(tmp_path)) as served:
            found.append(text(served, asked(image(), WHAT)))
            assert served.end() == 0
    assert found[0] == found[1]


def test_a_template_that_leaves_out_images_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_tiny(tmp_path / "a.gguf", "llama", quantised=False, template=TURNS)
    write_projector(tmp_path / "mmproj-a.gguf", "mlp")
    template = "u {{ messages[-1].content[:110] }}a "
    mark = media_mark(FILES[0])
    seen, long = f"{mark}what", "w" * 50 + mark
    warn_left_out.cache_clear()

    def read(service: Service, *contents: str, roles: str = "user assistant user") -> None:
        said = zip(roles.split(), contents, strict=False)
        messages = [{"role": role, "content": content} for role, content in said]
        asyncio.run(service.inputs.chat(ChatInput(messages, TextSettings(max_tokens=2))))

    with localspec.load(tmp_path / "a.gguf", draft="none", chat_template=template) as engine:
        service = Service(engine, SlotPool(engine, 1, 8), ["a"])
        read(service, seen)
        for contents in ([long], [seen, "a", long]):
            with pytest.raises(InvalidValueError, match="leaves out an image of the message"):
                read(service, *contents)
        assert not caplog.messages
        read(service, seen, "a", "and now")
        read(service, seen, "and now", roles="user user")
        agents = "user assistant tool user"
        read(service, "look", "a", seen, "go on", roles=agents)
        read(service, "look", "a", "seen", long, roles=agents)
        assert caplog.messages == [
            "the chat template of a leaves out images of earlier messages or of tools"
        ]


def test_each_image_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two texts are read in turns, and an image has several passes."""
    write_tiny(tmp_path / "a.gguf", "llama", quantised=False, template=TURNS, context=4096)
    write_projector(tmp_path / "mmproj-a.gguf", "mlp", side=14 * 32)
    library, encoded = media.mtmd_library(), list[Any]()
    encode = library.mtmd_encode_chunk
    monkeypatch.setattr(
        library, "mtmd_encode_chunk", lambda *given: encoded.append(given) or encode(*given)
    )

    async def both(service: Service) -> None:
        async def write(seed: int) -> None:
            content = media_mark(picture(seed=seed)) + "what"
            settings = TextSettings(max_tokens=2, sampling={"temperature": 0})
            chat = ChatInput([{"role": "user", "content": content}], settings)
            request = await service.inputs.chat(chat)
            assert len(request.prompt) > 1024
            async with service.reply(request) as reply, reply.deltas() as deltas:
                assert [delta async for delta in deltas]

        await asyncio.gather(write(1), write(2))
        await write(1)

    with localspec.load(tmp_path / "a.gguf", draft="none", threads=1, texts=2) as engine:
        asyncio.run(both(Service(engine, SlotPool(engine, 2, 8), ["a"])))
    assert len(encoded) == 2
