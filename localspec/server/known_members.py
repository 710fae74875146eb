"""Known members: the members that each protocol has, and what is said of others in a request.

Clients send names of other servers, and mistyped ones. They are no error, as a server that refused
them would serve few clients; the answer and the log say that they had no effect.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from localspec.server.fields import Fields
from localspec.utils.format import printable
from localspec.utils.similar_names import did_you_mean

# What every protocol reads of how a text is written, or refuses where it would change the answer.
# Ollama has it in `options`.
_OF_TEXTS = """
    adaptive_decay adaptive_target allowed_token_ids bad_words draft_model dry_allowed_length
    dry_base dry_multiplier dry_penalty_last_n dry_sequence_breakers dynatemp_exponent
    dynatemp_range ebnf epsilon_cutoff eta_cutoff format frequency_penalty grammar grammar_lazy
    grammar_triggers guided_choice guided_grammar guided_json guided_regex
    guided_whitespace_pattern ignore_eos include_stop_str_in_output json_schema length_penalty
    localspec logit_bias logits_processors lora min_keep min_p min_tokens mirostat mirostat_eta
    mirostat_mode mirostat_tau n_probs no_repeat_ngram_size options post_sampling_probs
    presence_penalty prompt_logprobs regex repeat_last_n repeat_penalty repetition_penalty
    response_format samplers seed skip_special_tokens smoothing_factor speculative stop
    stop_token_ids structured_outputs temperature tfs_z top_a top_k top_n_sigma top_p
    truncate_prompt_tokens typ_p typical typical_p use_beam_search xtc_probability xtc_threshold
"""
_OF_REQUESTS = "model stream"
_BUDGETS = """
    reasoning_budget_tokens thinking_budget thinking_budget_tokens thinking_token_budget
"""
# How much a model is to reason, in the words of all servers' clients.
_OF_THINKING = f"""
    {_BUDGETS} chat_template_kwargs enable_thinking reasoning reasoning_effort thinking
"""
# What OpenAI's protocols and llama-server's share.
_OF_FORMS = f"""
    {_BUDGETS} max_completion_tokens max_tokens n n_cmpl n_indent n_predict
    return_progress stream_options t_max_predict_ms timings_per_token
"""
_OF_OLLAMA = """
    _debug_render_only context draft_model format height keep_alive localspec logprobs options
    shift steps template think top_logprobs truncate width
"""
# What a protocol reads or refuses, beside _OF_REQUESTS.
_OF_PROTOCOLS = {
    "chat": f"""
        {_OF_TEXTS} {_OF_FORMS} {_OF_THINKING} add_generation_prompt audio best_of
        continue_final_message echo function_call functions logprobs messages modalities
        parallel_tool_calls parse_tool_calls prediction reasoning_budget_message
        reasoning_control reasoning_format tool_choice tools top_logprobs web_search_options
    """,
    "completions": f"{_OF_TEXTS} {_OF_FORMS} best_of echo logprobs prompt suffix",
    "native": f"""
        {_OF_TEXTS} {_OF_FORMS} input_extra input_prefix input_suffix logprobs prompt
        response_fields return_tokens
    """,
    "responses": f"""
        {_OF_TEXTS} {_OF_THINKING} background conversation include input instructions
        max_output_tokens parallel_tool_calls previous_response_id prompt stream_options text
        tool_choice tools top_logprobs truncation
    """,
    "messages": f"""
        {_OF_TEXTS} container max_tokens mcp_servers messages output_config stop_sequences system
        thinking tool_choice tools
    """,
    "ollama chat": f"{_OF_OLLAMA} messages parallel_tool_calls tool_choice tools",
    "ollama generate": f"{_OF_OLLAMA} images prompt raw suffix system",
    "embeddings": """
        content dimensions embd_normalize embedding_type embedding_types encoding_format input
        input_type keep_alive late_chunking normalize normalized options output_dimension
        output_dtype prompt prompt_name return_multivector task truncate truncate_prompt_tokens
        truncation
    """,
    "reranking": """
        documents instruct instruction max_chunks_per_doc max_tokens_per_doc query rank_fields
        raw_scores return_documents return_embeddings return_text texts top_k top_n truncate
        truncate_prompt_tokens truncation
    """,
    "options": f"""
        {_OF_TEXTS} {_OF_THINKING} draft_num_predict max_completion_tokens max_tokens n n_cmpl
        n_predict num_ctx num_predict
    """,
}
# Names that protocols have for one thing.
_SAME = (
    "max_completion_tokens max_output_tokens max_tokens n_predict num_predict",
    "instructions system",
    "stop stop_sequences",
    "enable_thinking output_config reasoning reasoning_effort think thinking",
    "format response_format",
    "input messages prompt",
)
# What clients are known to send, and what asks for nothing: who they are, what their own servers
# keep or account, or what is always done here.
_ASKS_NOTHING = """
    add_special_tokens anthropic_beta anthropic_version betas cache_control cache_prompt chat_id
    client_metadata context_management conversation_id extra_body extra_headers id metadata
    message_id n_keep priority prompt_cache_key prompt_cache_options prompt_cache_retention provider
    request_id route safety_identifier service_tier session_id slot_id
    spaces_between_special_tokens store transforms usage user
"""
# What some protocol has, and no answer here follows.
_HAS_NO_EFFECT = """
    backend_sampling diagnostics embedding_only fallbacks inference_geo max_tool_calls moderation
    n_discard num_keep output_format penalize_newline penalize_nl speed sse_ping_interval
    t_max_prompt_ms user_profile_id verbosity
"""
_READ = {
    protocol: frozenset(f"{_OF_REQUESTS if protocol != 'options' else ''} {names}".split())
    for protocol, names in _OF_PROTOCOLS.items()
}
# `id_slot` has a line of its own.
_PASSED = frozenset({*_ASKS_NOTHING.split(), "id_slot"})
KNOWN = _PASSED.union(*_READ.values())
# Options of Ollama's that say how a model is loaded, which is the server's command line's.
_OF_LOADING = """
    f16_kv logits_all low_vram main_gpu num_batch num_gpu num_gqa num_thread numa
    rope_frequency_base rope_frequency_scale use_mlock use_mmap vocab_only
"""
# Names that are said of one request, and the characters of each.
_MOST_NAMES, _LONGEST_NAME = 16, 40


def unused_members(body: Fields, protocol: str) -> Iterator[str]:
    """Yield which members of a request have no effect, a line for each.

    protocol: chat (completions), (text) completions, native (llama-server's), responses, messages
    (Anthropic's), ollama chat, ollama generate, the `options` of these, embeddings or reranking.
    """
    passed = _READ[protocol] | _PASSED
    unknown = (name for name in body.values if name not in passed and name in body)
    for name in islice(unknown, _MOST_NAMES):
        if not name.startswith("speculative.") or protocol.startswith("ollama"):
            yield _line(body.path, name[:_LONGEST_NAME], protocol)
    if "id_slot" in body and body.values["id_slot"] != -1:
        has_slots = protocol not in ("embeddings", "reranking")
        why = "a request gets the free slot that has read most of its prompt"
        yield f"id_slot: {why if has_slots else 'this protocol has no slots'}"


def unused_options(options: Fields, context: int) -> Iterator[str]:
    """Yield which of Ollama's `options` have no effect, a line for each. context: the server's."""
    loading = _OF_LOADING.split()
    for name in islice((name for name in loading if name in options), _MOST_NAMES):
        yield f"{options.place(name)}: it is chosen when the server starts"
    if (wanted := options.whole("num_ctx") or 0) > context:
        place = options.place("num_ctx")
        yield f"{place} is {wanted}, and the context has {context} tokens; start with --ctx"
    rest = {name: value for name, value in options.values.items() if name not in loading}
    yield from unused_members(Fields(rest, options.path), "options")


@lru_cache(maxsize=256)
def _line(path: str, name: str, protocol: str) -> str:
    place = f"{path}.{printable(name)}" if path else printable(name)
    if name in _HAS_NO_EFFECT.split():
        return f"{place}: it has no effect here"
    own = _READ[protocol]
    same = {each for names in _SAME if name in names.split() for each in names.split()}
    others = " or ".join(sorted(same & own))
    is_option = name in _READ["options"] or name in _OF_LOADING.split()
    if protocol.startswith("ollama") and is_option and not others:
        return f"{place}: Ollama's protocol has it within options"
    if protocol == "options" and name in _OF_OLLAMA.split():
        return f"{place}: Ollama's protocol has it beside options"
    if name in KNOWN:
        way_out = f"; it has {others}" if others else ""
        return f"{place}: this protocol has no such member{way_out}"
    hint = did_you_mean(name, sorted(own), most=1)
    return f"{place}: there is no such member" + (f"; {hint}" if hint else "")
