"""Markdown of the page: whole and while it grows, in a browser that nobody sees."""

import random
from typing import Any

import pytest

WHOLE = """([text]) => import("/static/markdown.js").then(({ render }) => {
    const box = document.createElement("div");
    box.append(...render(text));
    return box.innerHTML;
})"""
# Each text in the pieces that it is cut into, and whole: those that end in another way.
GROWN = """(cuts) => import("/static/markdown.js").then(({ GrowingMarkdown, render }) => {
    const differ = [];
    for (const pieces of cuts) {
        const whole = document.createElement("div");
        whole.append(...render(pieces.join("")));
        const grown = new GrowingMarkdown();
        for (const piece of pieces) grown.show(piece);
        grown.end();
        if (grown.settled.innerHTML !== whole.innerHTML || grown.open.childNodes.length) {
            differ.push([pieces, grown.settled.innerHTML, whole.innerHTML]);
        }
    }
    return differ.slice(0, 3);
})"""
# What a text that grew has settled before its end, and whether a node of it was made anew.
SETTLED = """(pieces) => import("/static/markdown.js").then(({ GrowingMarkdown }) => {
    const grown = new GrowingMarkdown();
    const first = [];
    for (const piece of pieces) {
        grown.show(piece);
        first.push(grown.settled.firstChild);
    }
    const kept = new Set(first.filter(Boolean)).size === 1;
    return [grown.settled.childNodes.length, grown.open.textContent, kept];
})"""
NESTED = """([text]) => import("/static/markdown.js").then(({ render }) => {
    const depth = (node) => 1 + Math.max(0, ...[...node.childNodes].map(depth));
    const nodes = render(text);
    return [Math.max(...nodes.map(depth)), nodes.map((node) => node.textContent).join("")];
})"""


def rendered(tab: Any, text: str) -> str:
    found: str = tab.evaluate(WHOLE, [text])
    return found


def code(text: str, language: str = "") -> str:
    """A block of code."""
    named = f"<span>{language}</span>"
    return (
        f'<figure class="code"><figcaption>{named}<button class="copy" type="button">Copy</button>'
        f'</figcaption><pre tabindex="0"><code>{text}</code></pre></figure>'
    )


def table(head: str, *rows: str) -> str:
    """A table of rows of cells."""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="table" tabindex="0"><table>{inner}</table></div>'


def link(url: str, label: str = "", more: str = "") -> str:
    opened = f'<a href="{url}" target="_blank" rel="noopener noreferrer"{more}>'
    return f"{opened}{label or url}</a>"


def p(text: str) -> str:
    return f"<p>{text}</p>"


def ul(*items: str) -> str:
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def ol(*items: str, start: int = 1) -> str:
    first = f' start="{start}"' if start > 1 else ""
    return f"<ol{first}>{''.join(f'<li>{item}</li>' for item in items)}</ol>"


def quote(inner: str) -> str:
    return f"<blockquote>{inner}</blockquote>"


def math(text: str) -> str:
    return f'<span class="math">{text}</span>'


BLOCKS = {
    "": "",
    " \n\n": "",
    "one\ntwo": p("one\ntwo"),
    "one\n\n\ntwo\n": p("one") + p("two"),
    "    indented": p("    indented"),
    # Headings
    "# one": "<h2>one</h2>",
    "###### six ##": "<h6>six</h6>",
    "####### seven": p("####### seven"),
    "#one": p("#one"),
    "## C#": "<h3>C#</h3>",
    "#": "<h2></h2>",
    "text\n## *b*\nmore": p("text") + "<h3><em>b</em></h3>" + p("more"),
    # Rules
    "a\n\n---\n***\n_ _ _": p("a") + "<hr><hr><hr>",
    "--": p("--"),
    "-*-": p("-*-"),
    # Code
    "```\na\n\n  b\n```": code("a\n\n  b"),
    "```python\nx = 1\n```\nafter": code("x = 1", "python") + p("after"),
    "before\n```c++ title\n*x*": p("before") + code("*x*", "c++ title"),
    "```js\nopen": code("open", "js"),
    "```": code(""),
    "```\nopen\n": code("open"),
    "~~~\n```\n~~~": code("```"),
    "````\n```\nx\n```\n````": code("```\nx\n```"),
    "```a`b``` x": p("<code>a`b</code> x"),
    "  ```\n  a\n    b\n  ```": code("a\n  b"),
    "```html\n<b>&amp;</b>\n```": code("&lt;b&gt;&amp;amp;&lt;/b&gt;", "html"),
    # Quotes
    "> a\n> b\n\nc": quote(p("a\nb")) + p("c"),
    "> > a\n> - b": quote(quote(p("a")) + ul(p("b"))),
    ">a\n>```\n>x\n>```": quote(p("a") + code("x")),
    # Lists
    "- a\n- b": ul(p("a"), p("b")),
    "* a\n\n* b\n": ul(p("a"), p("b")),
    "- a\n+ b": ul(p("a")) + ul(p("b")),
    "1. a\n2. b": ol(p("a"), p("b")),
    "3) a": ol(p("a"), start=3),
    "- a\n  - b\n    - c\n- d": ul(p("a") + ul(p("b") + ul(p("c"))), p("d")),
    "1. a\n  - b\n    - c\n2. d": ol(p("a") + ul(p("b") + ul(p("c"))), p("d")),
    "1. a\n    - b\n        - c\n": ol(p("a") + ul(p("b") + ul(p("c")))),
    "- a\n\t- b": ul(p("a") + ul(p("b"))),
    "- a\nlazy\n\nout": ul(p("a\nlazy")) + p("out"),
    "- a\n\n  more": ul(p("a") + p("more")),
    "1. Run:\n   ```sh\n   ls\n   ```\n2. So": ol(p("Run:") + code("ls", "sh"), p("So")),
    "1. a\n   ```\nls\n\n- x\n   ```\n2. b": ol(p("a") + code("ls\n\n- x"), p("b")),
    "1. a\n```\nls\n```\n2. b": ol(p("a")) + code("ls") + ol(p("b"), start=2),
    "- [ ] a\n- [x] b\n- [y] c": ul(p("☐ a"), p("☑ b"), p("[y] c")),
    "- # a\n- > b": ul("<h2>a</h2>", quote(p("b"))),
    "-": ul(""),
    "-a": p("-a"),
    "born in\n1986. A year": p("born in\n1986. A year"),
    "so:\n1. a": p("so:") + ol(p("a")),
    "- - a": ul(ul(p("a"))),
    # Tables
    "|a|b|\n|-|:-:|\n|1|*2*|\n|3": table(
        '<th>a</th><th class="center">b</th>',
        '<td>1</td><td class="center"><em>2</em></td>',
        '<td>3</td><td class="center"></td>',
    ),
    "text\na | b\n--|--:\n1 | 2 | 3\n\nend": p("text")
    + table('<th>a</th><th class="right">b</th>', '<td>1</td><td class="right">2 | 3</td>')
    + p("end"),
    "|a\\|b|\n|-|\n|`x`<br>y|": table("<th>a|b</th>", "<td><code>x</code><br>y</td>"),
    "|a|b|\n|-|-|\n|x|`a || \\| b`|\n|`` `|` ``|y|": table(
        "<th>a</th><th>b</th>",
        "<td>x</td><td><code>a || | b</code></td>",
        "<td><code>`|`</code></td><td>y</td>",
    ),
    "a | b\n---": p("a | b") + "<hr>",
    "# a\r\n\r\n---\r\nb": "<h2>a</h2><hr>" + p("b"),
    "|a|\n|-|-|": p("|a|\n|-|-|"),
    # Formulas stay as they are
    "\\[\na_1 * b * c\n\\]\nso": '<p class="math">\\[\na_1 * b * c\n\\]</p>' + p("so"),
    "$$x*y*z$$": '<p class="math">$$x*y*z$$</p>',
    "$$x$$ and *y*": p(math("$$x$$") + " and <em>y</em>"),
    "$$\nopen *a*\n\n*b*": p("$$\nopen <em>a</em>") + p("<em>b</em>"),
}

INLINES = {
    "*a* **b** ***c***": "<em>a</em> <strong>b</strong> <em><strong>c</strong></em>",
    "_d_ __e__ ~~f~~": "<em>d</em> <strong>e</strong> <del>f</del>",
    "**a *b* c**": "<strong>a <em>b</em> c</strong>",
    "*a **b*": "*a *<em>b</em>",
    "snake_case_name and a*b*c": "snake_case_name and a<em>b</em>c",
    "2 * 3 * 4, a ** b": "2 * 3 * 4, a ** b",
    "~a~ ~~~b~~~": "~a~ ~~~b~~~",
    "**open": "**open",
    "**a:** b **c:**d": "<strong>a:</strong> b **c:**d",
    "是**重点\uff1a**说": "是<strong>重点\uff1a</strong>说",
    "`a*b*` ``c`d`` ` e ` `open": "<code>a*b*</code> <code>c`d</code> <code>e</code> `open",
    "\\*a\\* \\\\ \\d": "*a* \\ \\d",
    "&lt;b&gt; &amp;lt; &copy;": "&lt;b&gt; &amp;lt; &amp;copy;",
    "a<br>b<br/>c": "a<br>b<br>c",
    "\\(a_1*b*c\\) $x_i*y*z$": math("\\(a_1*b*c\\)") + " " + math("$x_i*y*z$"),
    "$5 and *6*$7 $HOME/$USER ${A}$": "$5 and <em>6</em>$7 $HOME/$USER ${A}$",
    # Links
    "[a *b*](https://x.org/p?q=1#r)": link("https://x.org/p?q=1#r", "a <em>b</em>"),
    '[a](http://x.org "t")': link("http://x.org", "a", ' title="t"'),
    "[a](<https://x.org/a b>)": link("https://x.org/a b", "a"),
    "[a](https://x.org/b_(c))d": link("https://x.org/b_(c)", "a") + "d",
    "[](https://x.org)": link("https://x.org"),
    "(https://x.org/a_b_c).": f"({link('https://x.org/a_b_c')}).",
    "**https://y.org**": f"<strong>{link('https://y.org')}</strong>",
    "见https://x.org/é。然后": f"见{link('https://x.org/é')}。然后",
    "<https://x.org>": link("https://x.org"),
    "[https://x.org](https://y.org)": link("https://y.org", "https://x.org"),
    "[[a](https://x.org)](https://y.org)": link("https://y.org", "a"),
    "ahttps://x.org https:// http": "ahttps://x.org https:// http",
    "![a](https://x.org/a.png)": link("https://x.org/a.png", "a", ' class="image"'),
    "[a] [b](c d) [c]: x ![": "[a] [b](c d) [c]: x ![",
    "*[a*](https://x.org)": f"*{link('https://x.org', 'a*')}",
}

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<a href='javascript:alert(1)'>a</a>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](java\nscript:alert(1))",
    "[a]( javascript:alert(1))",
    "[a](<javascript:alert(1)>)",
    "[a](data:text/html,<script>alert(1)</script>)",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](//evil.example) [d](/slots) [e](mailto:a@b)",
    "<javascript:alert(1)> <data:x>",
    "![a](javascript:alert(1)) ![b](data:image/svg+xml,<svg/onload=alert(1)>)",
    '[a](https://x.org/"onmouseover="alert(1))',
    '[a](https://x.org "\\"><img src=x onerror=alert(1)>")',
    "```<img src=x onerror=alert(1)>\n</code></pre><script>alert(1)</script>\n```",
    "|<img src=x onerror=alert(1)>|\n|-|\n|<svg onload=alert(1)>|",
    "# <iframe src=//evil.example>\n> <style>*{display:none}</style>\n- <form><input>",
    "https://x.org/<script> https://x.org\"onclick='a'",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
]
# Texts that would take some readers of Markdown for ever.
LONG = [
    "x" * 100_000, "h" * 100_000, " " * 100_000 + "x", "#" + " " * 100_000 + "x", "*a " * 33_000,
    "a* " * 33_000, "*a _b " * 17_000, "*a **b " * 14_000 + "b** a* " * 14_000, "*" * 100_000,
    "[" * 100_000, "![" * 50_000, "]" * 100_000, "[a](" * 25_000, "[a](b" * 20_000, "`" * 100_000,
    "".join("`" * length + "a" for length in range(1, 440)), "\\(" * 50_000, "$$" * 50_000,
    "$a " * 33_000, "|" * 100_000, "|a" * 50_000 + "\n" + "|-" * 50_000, "> " * 50_000,
    "- " * 50_000 + "x", "- - " * 25_000, "-" * 100_000 + "x", "a|b\n" * 25_000, "- a\n" * 25_000,
    "\n" * 100_000, "https://x.org/" + ")" * 100_000, "https://a " * 10_000, "&" * 100_000,
    "<" * 100_000, "```\n" * 25_000, "1. " * 33_000, "_a" * 50_000, "~~a " * 25_000,
    "\\[\n" * 33_000, "[a](https://x.org)" * 5_000, "  - a\n" * 16_000, "a\\" * 50_000,
    "".join("  " * depth + "- a\n" for depth in range(300)),
]  # fmt: skip


@pytest.mark.parametrize("text", BLOCKS, ids=repr)
def test_blocks(tab: Any, text: str) -> None:
    assert rendered(tab, text) == BLOCKS[text]


@pytest.mark.parametrize("text", INLINES, ids=repr)
def test_inlines(tab: Any, text: str) -> None:
    assert rendered(tab, text) == f"<p>{INLINES[text]}</p>"


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_texts_never_become_html(tab: Any, text: str) -> None:
    """Only elements that Markdown has, and links to pages."""
    found = tab.evaluate(
        """([text]) => import("/static/markdown.js").then(({ render }) => {
            const box = document.createElement("div");
            box.append(...render(text));
            const all = [...box.querySelectorAll("*")];
            return [
                all.map((each) => each.localName),
                all.flatMap((each) => each.getAttributeNames()),
                [...box.querySelectorAll("a")].map((each) => each.protocol),
            ];
        })""",
        [text],
    )
    names, attributes, protocols = map(set, found)
    assert names <= {
        *("p", "a", "h2", "blockquote", "ul", "li", "figure", "figcaption", "span", "button"),
        *("pre", "code", "div", "table", "thead", "tbody", "tr", "th", "td", "em"),
    }
    assert attributes <= {"href", "target", "rel", "class", "type", "tabindex", "title"}
    assert protocols <= {"https:"}


@pytest.mark.parametrize("number", range(len(LONG)))
def test_long_texts_lose_no_letter_and_nest_no_deeper_than_pages_may(tab: Any, number: int) -> None:
    depth, shown = tab.evaluate(NESTED, [LONG[number]])
    assert depth < 120
    if "https" not in LONG[number]:
        assert [*map(shown.count, "xbah")] == [*map(LONG[number].count, "xbah")]


def test_a_text_that_grows_ends_as_the_whole_one(tab: Any) -> None:
    """Cut at every character, and into single ones."""
    texts = [*BLOCKS, *INLINES, *HOSTILE, "\n\n".join(BLOCKS)[:2500]]
    for text in texts:
        cuts = [[text[:at], text[at:]] for at in range(1, min(len(text), 400))]
        assert tab.evaluate(GROWN, [*cuts, [*text]]) == []


def test_random_texts_that_grow_end_as_the_whole_ones(tab: Any) -> None:
    draw = random.Random(3)
    parts = [
        *("- ", "1. ", "2. ", "> ", "# ", "```", "~~~", "\n", "\n\n", "  ", "    ", "a", "b c"),
        *("*", "**", "_", "`", "|", "|-|", "\n|-|-|\n", "a|b", "---", "[a](", "https://x.org"),
        *(")", "$$", "\\[", "\\]", "\\(", "\\)", "<", "&lt;", "![", "\\", "\t", "~~", "[x] ", ":"),
    ]
    for _ in range(40):
        cuts = []
        for _ in range(50):
            pieces = draw.choices(parts, k=draw.randint(2, 40))
            cuts += [pieces, [*"".join(pieces)]]
        assert tab.evaluate(GROWN, cuts) == []


def test_what_has_ended_is_not_drawn_again(tab: Any) -> None:
    pieces = [f"word {number}\n\n" for number in range(50)]
    settled, rest, kept = tab.evaluate(SETTLED, pieces)
    assert settled >= 48 and kept
    assert "word 49" in rest and "word 0" not in rest
