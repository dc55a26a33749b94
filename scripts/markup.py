"""Text out of the markup of Debian's documentation: HTML, reStructuredText, troff manual pages, fortune files.

Each function takes the text of one file and its language, and gives plain text (or, for fortunes, several). They are
cheap and good enough for a training corpus, not complete parsers.
"""
import html
import re

HANZI = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
# Where a line break between two of these is an artefact of wrapping, and not a space.
WIDE = "\u3000-\u303f\u3400-\u9fff\uff00-\uffef"
WRAPPED = re.compile(f"(?<=[{WIDE}])[ \t]*\n[ \t]*(?=[{WIDE}])")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def tidy(text):
    """No trailing spaces, at most one empty line in a row, none at the ends."""
    text = text.replace("\r\n", "\n").replace("\xa0", " ").replace("\u200b", "").replace("\ufeff", "")
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


# ---- HTML

BODY_ENDS = ('<div id="SearchFrame"', '<div class="navfooter"', '<ul class="docnav">', "<footer")
BODY_BEGINS = ('<div id="DisplayArea"', "<body")
DROPPED = re.compile(
    r"<(script|style|head|title|noscript|nav|button|header)\b.*?</\1>"
    r'|<ul class="docnav.*?</ul>|<p id="title">.*?</p>|<div id="banner">.*?</div>'
    r'|<div class="navheader">.*?</table>'
    r'|<div class="toc">.*?</dl>\s*</div>(?=\s*<(?:div|p|h\d))'
    r'|<span hidden="true" id="MAC[^>]*>(?:<span[^>]*>[^<]*</span>|[^<])*</span>|<!--.*?-->', re.S)
PRE = re.compile(r"<pre\b[^>]*>(.*?)</pre>", re.S)
BLOCK = re.compile(r"</?(?:p|div|h\d|ul|ol|dl|dt|dd|table|tr|section|blockquote|hr)\b[^>]*>")


def untranslated(paragraph):
    return len(paragraph) >= 60 and not HANZI.search(paragraph)


def html_flow(text, lang):
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"<br\b[^>]*>", "\n", text)
    text = re.sub(r"<li\b[^>]*>(?:\s*<(?:p|div)\b[^>]*>)?", "\n\n- ", text)
    text = re.sub(r"</t[dh]>\s*(?=<t[dh])", "  ", text)
    text = re.sub(r"<[^>]*>", "", BLOCK.sub("\n\n", text))
    paragraphs = [p.strip() for p in re.split(r"\n\s*\n", html.unescape(text))]
    kept = [p for p in paragraphs if p and p != "-" and not (lang == "zh" and untranslated(p))]
    return "\n\n".join(kept)


def html_text(text, lang):
    begin = next((i for i in (text.find(mark) for mark in BODY_BEGINS) if i >= 0), 0)
    end = min([i for i in (text.rfind(mark) for mark in BODY_ENDS) if i > begin] or [len(text)])
    text = DROPPED.sub("", text[begin:end])
    parts = []
    for i, part in enumerate(PRE.split(text)):
        parts.append(html.unescape(re.sub(r"<[^>]*>", "", part)).strip("\n") if i % 2 else html_flow(part, lang))
    return tidy("\n\n".join(part for part in parts if part.strip()))


# ---- reStructuredText

RST_DROPPED = re.compile(
    r"^\.\. (?:SPDX|include::|toctree::|contents::|tabularcolumns::|cssclass::|kernel-doc::|_|highlight::|only::|index::|role::|raw::).*$"
    r"|^ +:(?:maxdepth|glob|numbered|caption|functions|identifiers|internal|export|doc|local|depth|class|widths|"
    r"header-rows|stub-columns|align|alt|name|linenos|lineno-start|emphasize-lines).*$"
    r"|^[=\-~^\"'`#*+.:_]{4,} *$", re.M)
# Translators and originals stand before the first title of a translated page.
RST_CREDITS = re.compile(r"^ *:?(?:Original|Translator|翻译|校译|译者|原文|:?中文版.*?)[:：].*\n(?:\n? +.*\n)*", re.M)


def rst_text(text, lang):
    text = text.replace("\t", "        ")
    text = RST_CREDITS.sub("", text)
    text = RST_DROPPED.sub("", text)
    text = re.sub(r"^( *)\.\. (?:code-block|parsed-literal|math|flat-table|list-table|csv-table)::.*$", "", text,
                  flags=re.M)
    text = re.sub(r"^( *)\.\. (?:figure|kernel-figure|image|kernel-render)::.*\n(?:\1 +:.*\n)*", "", text, flags=re.M)
    text = re.sub(r"^( *)\.\. c:[a-z]+:: *", r"\1", text, flags=re.M)
    text = re.sub(r"^( *)\.\. ([a-z]+):: *", lambda m: f"{m[1]}{m[2].capitalize()}: ", text, flags=re.M)
    text = re.sub(r"^\.\. .*\n(?:[ ]+\S.*\n)*", "", text, flags=re.M)
    text = re.sub(r":[a-z:]+:`([^`<]*?)(?: *<[^`>]*>)?`", r"\1", text)
    text = re.sub(r"`([^`<\n]+?) *<[^`>]*>`_+", r"\1", text)
    text = re.sub(r"``([^`\n]+)``|`([^`\n]+)`_*|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*(?!\w)",
                  lambda m: m[1] or m[2] or m[3] or m[4], text)
    text = re.sub(r"::[ ]*$", ":", text, flags=re.M)
    text = re.sub(r"\\ ", "", text)
    return tidy(WRAPPED.sub("", text) if lang == "zh" else text)


# ---- manual pages

MAN_ESCAPES = [(re.compile(p), r) for p, r in (
    (r"\\f(?:\(..|\[[^]]*\]|.)", ""), (r"\\s[+-]?\d", ""), (r"\\\*\(lq|\\\(lq|\\\*\(Lq", "“"),
    (r"\\\*\(rq|\\\(rq|\\\*\(Rq", "”"), (r"\\\((?:aq|cq)", "'"), (r"\\\(bu", "-"), (r"\\\(co", "©"),
    (r"\\\((?:em|en|hy|mi)", "-"), (r"\\\(dq", '"'), (r"\\[*n]?\(..", ""), (r"\\\[[^]]*\]", ""),
    (r"\\[hvwl]'[^']*'", ""), (r"\\[&|^%/,:c)]", ""), (r"\\\".*$", ""), (r"\\-", "-"), (r"\\[ ~0]", " "),
    (r"\\\*.", ""), (r"\\[e\\]", r"\\"), (r"\\(.)", r"\1"))]
MAN_END = re.compile(r"^\W*(?:中文版维护人|跋\s*$|中文版最新更新|本页面中文版由).*", re.M | re.S)
MAN_BREAKS = {"PP", "P", "LP", "TP", "IP", "HP", "sp", "RS", "RE", "Pp", "nf", "fi", "Bd", "Ed"}
MAN_TEXT = {"B", "I", "BR", "BI", "IB", "IR", "RB", "RI", "SM", "SB", "UR", "MT", "Nm", "Ar", "Fl", "Xr", "Em", "Cm",
            "Nd", "Pa", "Li", "Sy", "Ql", "Dq", "Op"}


def man_arguments(rest, join):
    words = re.findall(r'"([^"]*)"?|(\S+)', rest)
    return join.join(a or b for a, b in words)


def man_text(text, lang):
    lines, fill = [], True
    for line in text.split("\n"):
        match = re.match(r"^[.'][ \t]*([A-Za-z]+|\\\")[ \t]*(.*)$", line)
        if not match:
            lines.append(line if fill else "\n" + line)
            continue
        name, rest = match[1], re.sub(r'\\".*$', "", match[2])
        if name == "so":
            return ""
        if name in ("nf", "fi", "Bd", "Ed", "EX", "EE"):
            fill = name in ("fi", "Ed", "EE")
        if name in ("SH", "SS", "Sh", "Ss"):
            lines.append(f"\n\n{man_arguments(rest, ' ')}\n\n")
        elif name == "IP" and rest:
            lines.append(f"\n\n{man_arguments(rest.rsplit(None, 1)[0] if ' ' in rest else rest, ' ')} ")
        elif name in ("It",):
            lines.append(f"\n\n{man_arguments(rest, ' ')} ")
        elif name in MAN_BREAKS:
            lines.append("\n\n" if fill else "\n")
        elif name == "br":
            lines.append("\n")
        elif name in MAN_TEXT:
            words = man_arguments(rest, "" if len(name) == 2 and name.isupper() and name != "SM" else " ")
            lines.append(words if fill else "\n" + words)
    return man_fill(lines, lang)


def man_fill(lines, lang):
    text = ""
    for line in lines:
        if text and not text.endswith("\n") and not line.startswith("\n"):
            text += "\0"
        text += line
    for pattern, replacement in MAN_ESCAPES:
        text = pattern.sub(replacement, text)
    text = re.sub(f"(?<=[{WIDE}])\0(?=[{WIDE}])", "", text).replace("\0", " ")
    return tidy(re.sub(r"\n[ \t]*\n\s*\n", "\n\n", MAN_END.sub("", text)))


# ---- fortunes

def fortunes(text, _lang):
    """Sayings and poems are short: neighbours are joined until they have 600 bytes."""
    held = ""
    for entry in re.split(r"\n%(?:\n|\Z)", ANSI.sub("", text)):
        held += ("\n\n" if held else "") + tidy(entry)
        if len(held.encode()) >= 600:
            yield held
            held = ""
    if held:
        yield held
