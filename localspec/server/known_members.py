"""Known members: the names of a request's members, and what is said of those that no protocol has.

Clients send names of other servers, and mistyped ones. They are no error, as a server that refused
them would serve few clients; the answer and the log say that they had no effect.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from localspec.server.fields import Fields
from localspec.utils.format import printable
from localspec.utils.similar_names import did_you_mean

# What some protocol reads, or refuses where it would change the answer.
_OF_TEXTS = """
    adaptive_decay adaptive_target allowed_token_ids bad_words best_of chat_template_kwargs
    draft_model dry_allowed_length dry_base dry_multiplier dry_penalty_last_n dry_sequence_breakers
    dynatemp_exponent dynatemp_range ebnf enable_thinking epsilon_cutoff eta_cutoff
    frequency_penalty grammar grammar_lazy grammar_triggers guided_choice guided_grammar guided_json
    guided_regex guided_whitespace_pattern ignore_eos include_stop_str_in_output json_schema
    length_penalty localspec logit_bias logits_processors logprobs lora max_completion_tokens
    max_output_tokens max_tokens min_keep min_p min_tokens mirostat mirostat_eta mirostat_mode
    mirostat_tau model n n_cmpl n_predict n_probs no_repeat_ngram_size num_predict
    post_sampling_probs presence_penalty prompt_logprobs reasoning reasoning_budget_tokens
    reasoning_effort regex repeat_last_n repeat_penalty repetition_penalty response_format
    response_fields return_progress return_tokens samplers seed skip_special_tokens smoothing_factor
    speculative stop stop_token_ids stream stream_options structured_outputs temperature tfs_z
    thinking thinking_budget thinking_budget_tokens thinking_token_budget timings_per_token top_a
    top_k top_logprobs top_n_sigma top_p truncate_prompt_tokens typ_p typical typical_p
    use_beam_search xtc_probability xtc_threshold
"""
_OF_PROTOCOLS = """
    _debug_render_only add_generation_prompt audio background container context
    continue_final_message conversation draft_num_predict echo format function_call functions height
    id_slot images include input input_extra input_prefix input_suffix instructions keep_alive
    mcp_servers messages metadata modalities n_indent num_ctx options output_config
    parallel_tool_calls parse_tool_calls prediction previous_response_id prompt raw
    reasoning_budget_message reasoning_control reasoning_format shift steps stop_sequences store
    suffix system t_max_predict_ms template text think tool_choice tools truncate truncation
    web_search_options width
"""
# What clients are known to send, and what asks for nothing: who they are, what their own servers
# keep or account, or what is always done here.
_ASKS_NOTHING = """
    add_special_tokens anthropic_beta anthropic_version betas cache_control cache_prompt chat_id
    client_metadata context_management conversation_id extra_body extra_headers id message_id
    n_keep priority prompt_cache_key prompt_cache_options prompt_cache_retention provider request_id
    route safety_identifier service_tier session_id slot_id spaces_between_special_tokens
    transforms usage user
"""
# What some protocol has, and no answer here follows.
_HAS_NO_EFFECT = """
    backend_sampling diagnostics embedding_only fallbacks inference_geo max_tool_calls moderation
    n_discard num_keep output_format penalize_newline penalize_nl speed sse_ping_interval
    t_max_prompt_ms user_profile_id verbosity
"""
_READ = frozenset(f"{_OF_TEXTS} {_OF_PROTOCOLS}".split())
KNOWN = _READ | {*_ASKS_NOTHING.split()}
# Options of Ollama's that say how a model is loaded, which is the server's command line's.
_OF_LOADING = """
    f16_kv logits_all low_vram main_gpu num_batch num_gpu num_gqa num_thread numa
    rope_frequency_base rope_frequency_scale use_mlock use_mmap vocab_only
"""
# Names that are said of one request, and the characters of each.
_MOST_NAMES, _LONGEST_NAME = 16, 40


def unused_members(body: Fields) -> Iterator[str]:
    """Yield which members of a request have no effect, a line for each."""
    unknown = (name for name in body.values if name not in KNOWN and name in body)
    for name in islice(unknown, _MOST_NAMES):
        if not name.startswith("speculative."):
            yield _line(body.path, name[:_LONGEST_NAME])
    if "id_slot" in body and body.values["id_slot"] != -1:
        yield "id_slot: a request gets the free slot that has read most of its prompt"


def unused_options(options: Fields, context: int) -> Iterator[str]:
    """Yield which of Ollama's `options` have no effect, a line for each. context: the server's."""
    loading = _OF_LOADING.split()
    for name in islice((name for name in loading if name in options), _MOST_NAMES):
        yield f"{options.place(name)}: it is chosen when the server starts"
    if (wanted := options.whole("num_ctx") or 0) > context:
        place = options.place("num_ctx")
        yield f"{place} is {wanted}, and the context has {context} tokens; start with --ctx"
    rest = {name: value for name, value in options.values.items() if name not in loading}
    yield from unused_members(Fields(rest, options.path))


@lru_cache(maxsize=256)
def _line(path: str, name: str) -> str:
    place = f"{path}.{printable(name)}" if path else printable(name)
    if name in _HAS_NO_EFFECT.split():
        return f"{place}: it has no effect here"
    hint = did_you_mean(name, _READ, most=1)
    return f"{place}: there is no such member" + (f"; {hint}" if hint else "")
