"""Chat templates that would compute without end, or fill the memory; some only look like it.

    python -m fakes.hostile_templates 1000        with the folder tests/ on PYTHONPATH

renders so many composed ones and says what became of each kind, the slowest and the largest.
"""

import re
import sys
from collections import Counter
from random import Random
from time import perf_counter

from localspec.errors import InvalidValueError
from localspec.llama.chat_template import render


def _doubled(start: str, step: str, end: str = "{{ n.x | length }}") -> str:
    loop = f"{{% for i in range(60) %}}{{% set n.x = {step} %}}{{% endfor %}}"
    return f"{{% set n = namespace(x={start}) %}}{loop}{end}"


# Each needs more time or memory than there is, where nothing bounds it.
HOSTILE = [
    "{{ ('a\\n' * 1000) | indent(10000000) }}",
    "{{ 'a' * 3000000000 }}",
    "{{ ['a'] * 3000000000 }}",
    "{{ 'a' | center(3000000000) }}",
    "{{ 'a'.ljust(3000000000) }}",
    "{{ '5'.zfill(3000000000) }}",
    "{{ '\\t'.expandtabs(2000000000) }}",
    "{{ '%3000000000d' % 1 }}",
    "{{ '%*d' % (2000000000, 1) }}",
    "{{ '{:3000000000}'.format('a') }}",
    "{{ '%1000000000s' | format('a') }}",
    "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "{{ ('b' * 100000).join('a' * 100000) }}",
    "{{ 10 ** 10000000000 }}",
    "{{ (7 ** 100000) ** 100000 }}",
    "{{ [1] | batch(3000000000, 'x') | list }}",
    "{{ 'a' | slice(3000000000) | list }}",
    "{{ [[1, [2]]] | tojson(indent=2000000000) }}",
    "{{ (1).to_bytes(3000000000, 'big') }}",
    "{{ lipsum(n=100000000) }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{{ 'a' * 100000 }}{% endfor %}",
    "{% macro m(n) %}{{ m(n - 1) }}{{ m(n - 1) if n > 0 }}{% endmacro %}{{ m(400) }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) ~ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
    "{% for x in [[[1]]] recursive %}{% for i in range(99999) %}{% for j in range(9999) %}"
    "{% endfor %}{% endfor %}{{ loop(x) }}{% endfor %}",
    _doubled("'ab'", "n.x + n.x"),
    _doubled("'ab'", "n.x ~ n.x"),
    _doubled("'ab'", "n.x | replace('a', 'aaaa')"),
    _doubled("[1]", "n.x + n.x"),
    _doubled("7", "n.x * n.x"),
    _doubled("[1]", "[n.x, n.x]", "{{ n.x }}"),
    _doubled("[1]", "[n.x, n.x]", "{{ n.x | tojson }}"),
    _doubled("(1,)", "(n.x, n.x)", "{{ {n.x: 1} | length }}"),
    _doubled("{'a': 1}", "{'a': n.x, 'b': n.x}", "{{ n.x | string | length }}"),
    _doubled("[[1], [1]]", "[[n.x[0], n.x[0]], [n.x[1], n.x[1]]]", "{{ n.x[0] == n.x[1] }}"),
    "{{ range(99999) | map('string') | map('center', 99999) | join }}",
    "{{ range(99999) | map('center', 99999) | list | length }}",
    "{{ ((range(9999) | list) * 9999) | string | length }}",
    "{{ ('http://' * 300000) | urlize }}",
    "{% for i in range(99999) %}{% for j in range(999) %}{{ messages[0].content * i }}"
    "{% endfor %}{% endfor %}",
    "{% for m in messages %}{% for a in range(99999) %}{{ (range(99999) | sum) }}{% endfor %}"
    "{% endfor %}",
    "{% set c = cycler('a') %}{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% set x = c.next() %}{% endfor %}{% endfor %}",
]

# Parts of composed templates: what the value `@` is first, and what makes it grow by `#`.
_SEEDS = ["'ab'", "[1, 2]", "messages", "messages[0].content", "7", "{'a': 1}", "range(99999)"]
_STEPS = [
    "@ + @", "@ ~ @", "@ * 9", "[@, @]", "(@, @)", "{'a': @, 'b': @}", "@ | list", "@ | string",
    "@ | tojson(indent=#)", "@ | join('ab')", "@ | indent(#)", "@ | center(#)", "@ ** #",
    "@ | batch(#, 'x') | list", "@ | string | replace('', 'abc')", "@ | map('string') | list",
    "'%#s' % @", "@ | sort", "@ | pprint", "@ | urlencode", "@ | reverse | list", "@ == [@]",
    "@ | string | wordcount", "@ | wordwrap(#)", "@ | round(#)", "@ * #", "@ | string | upper",
]  # fmt: skip
_LOOPS = ["", "{% for i in range(#) %}", "{% for i in range(#) %}{% for j in range(#) %}"]
_NUMBERS = ["2", "9", "60", "999", "99999", "3000000000"]


def composed(random: Random) -> str:
    """A template of random growing steps within random loops."""
    loop = random.choice(_LOOPS)
    steps = "".join(
        f"{{% set n.x = {random.choice(_STEPS)} %}}" for _ in range(random.randint(1, 4))
    )
    ends = "{% endfor %}" * loop.count("{% for")
    text = f"{{% set n = namespace(x={random.choice(_SEEDS)}) %}}{loop}{steps}{ends}{{{{ @ }}}}"
    text = text.replace("@", "n.x")
    return "".join(random.choice(_NUMBERS) if letter == "#" else letter for letter in text)


def outcome(template: str) -> str:
    """What became of one: "rendered", or the error without what is special about it.

    Raises AssertionError where the error is not one short line.
    """
    try:
        render(template, [{"role": "user", "content": "hi"}], bos="<s>", eos="</s>")
    except InvalidValueError as error:
        message = str(error)
        assert message.isprintable(), message
        assert len(message) < 500, message
        return re.sub(r" \(.*\)|;.*", "", message)
    return "rendered"


def main(count: int) -> None:
    """Render composed templates one after the other; print what came of them."""
    outcomes, slowest = Counter[str](), (0.0, "")
    for number in range(count):
        template = composed(Random(number))
        begun = perf_counter()
        outcomes[outcome(template)] += 1
        slowest = max(slowest, (perf_counter() - begun, template))
    for what, times in outcomes.most_common():
        sys.stdout.write(f"{times:8} {what}\n")
    sys.stdout.write(f"slowest: {slowest[0]:.1f} s, {slowest[1]}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
