"""Chat templates as families of models have them: small, with their habits and their tempers.

Special tokens are text here; which of them are tokens is for a vocabulary to say.
"""

# Every role alike; what tools are called with is written as JSON.
CHATML = r"""
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' }}
    {{- message.content or '' }}
    {%- for call in message.tool_calls or [] %}
        {{- '\n' if message.content or not loop.first }}
        {{- '<tool_call>\n' ~ call.function | tojson ~ '\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

# Trims what was said.
LLAMA3 = r"""
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' ~ message['role'] ~ '<|end_header_id|>\n\n' }}
    {{- message['content'] | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

# Has no system role and puts it in front of the first question; insists on turns.
GEMMA = r"""
{{- bos_token }}
{%- set start = 1 if messages[0].role == 'system' else 0 %}
{%- for message in messages[start:] %}
    {%- if (message.role == 'user') != (loop.index0 is even) %}
        {{- raise_exception('user and assistant must take turns') }}
    {%- endif %}
    {{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\n' }}
    {%- if loop.first and start %}
        {{- messages[0].content | trim ~ '\n\n' }}
    {%- endif %}
    {{- message.content | trim ~ '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %}
"""

# Puts the system's words in front of the last question, so that earlier ones lose them.
MISTRAL = r"""
{{- bos_token }}
{%- set start = 1 if messages[0].role == 'system' else 0 %}
{%- for message in messages[start:] %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' }}
        {%- if loop.last and start %}
            {{- messages[0].content ~ '\n\n' }}
        {%- endif %}
        {{- message.content ~ '[/INST]' }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' ~ message.content | trim ~ eos_token }}
    {%- else %}
        {{- raise_exception('the role ' ~ message.role ~ ' is unknown') }}
    {%- endif %}
{%- endfor %}
"""

# Forgets what was thought before the last question, and keeps what was thought since.
QWEN3 = r"""
{%- set last = namespace(question=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- set last.question = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content ~ '\n\n' }}
    {%- endif %}
    {{- '# Tools\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' ~ tool | tojson }}
    {%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- set content, thought = message.content or '', message.reasoning_content or '' %}
        {%- if not thought and '</think>' in content %}
            {%- set thought = content.split('</think>')[0].replace('<think>', '').strip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > last.question and thought %}
            {{- '<think>\n' ~ thought ~ '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n' if content or not loop.first }}
            {{- '<tool_call>\n' ~ call.function | tojson ~ '\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- elif message.role == 'user' or not tools or not loop.first %}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

# Always thinks: the prompt opens the thought, and the next prompt drops it.
R1 = r"""
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- message.content }}
    {%- elif message.role == 'user' %}
        {{- '<|User|>' ~ message.content }}
    {%- else %}
        {{- '<|Assistant|>' ~ message.content.split('</think>')[-1] ~ eos_token }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|Assistant|><think>\n' }}
{%- endif %}
"""

# No special tokens at all.
PLAIN = r"""
{%- for message in messages %}
    {{- message.role | capitalize ~ ': ' ~ message.content ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'Assistant:' }}
{%- endif %}
"""

# No template: the second line is not closed.
BROKEN = r"""{% for message in messages %}
{{ message.content }
{% endfor %}
"""

# Cannot do without a variable that is not among those every template gets.
NEEDY = r"""
{{- 'You are ' + persona + '.\n' }}
{%- for message in messages %}
    {{- message.role ~ ': ' ~ message.content ~ '\n' }}
{%- endfor %}
"""

# Tells the day.
DATED = r"""
{{- 'Today is ' ~ strftime_now('%Y-%m-%d') ~ '.\n' }}
{%- for message in messages %}
    {{- message.role ~ ': ' ~ message.content ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'assistant:' }}
{%- endif %}
"""

# Refuses a system message elsewhere than at the beginning and arguments that are no map, as
# Qwen's do, and begins each answer with reasoning, unless told otherwise.
STRICT = """
{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}
        {{- raise_exception('System message must be at the beginning.') }}
    {%- endif %}
    {{- '<s>' ~ message.role[0] ~ ' ' }}
    {%- if message.reasoning_content %}
        {{- '<think>' ~ message.reasoning_content ~ '</think>' }}
    {%- endif %}
    {{- message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>{"name": ' ~ call.function.name | tojson ~ ', "arguments": {' }}
        {%- for name, value in call.function.arguments | items %}
            {{- name | tojson ~ ': ' ~ value | tojson }}
        {%- endfor %}
        {{- '}}</tool_call>' }}
    {%- endfor %}
    {{- '</s>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<s>a <think>' ~ ('</think>' if enable_thinking is false else '') }}
{%- endif %}
"""

# Reads a content as a list of parts only, and looks at the first of them, as those of models that
# read images do.
PARTS = r"""
{%- for message in messages %}
    {{- '<turn>' ~ message['role'] ~ (':' if message['content'][0]['type'] == 'image' else ': ') }}
    {%- for part in message['content'] %}
        {%- if part['type'] == 'text' %}
            {{- part['text'] }}
        {%- elif part['type'] == 'image' %}
            {{- '<image>' }}
        {%- endif %}
    {%- endfor %}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\n' ~ call.function | tojson ~ '\n</tool_call>' }}
    {%- endfor %}
    {{- '</turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<turn>assistant: ' }}
{%- endif %}
"""

# The same, by a filter: all images, then all texts.
SELECTED_PARTS = r"""
{%- for message in messages %}
    {{- message['role'] | upper ~ ': ' }}
    {%- for part in message['content'] | selectattr('type', 'equalto', 'image') %}
        {{- '<image>\n' }}
    {%- endfor %}
    {%- for part in message['content'] | selectattr('type', 'equalto', 'text') %}
        {{- part['text'] ~ ' ' }}
    {%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'ASSISTANT:' }}
{%- endif %}
"""
