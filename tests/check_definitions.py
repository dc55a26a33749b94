#!/usr/bin/env python3
"""Checks that no program defines one name of namespace scope in two files (the one definition rule).

Neither compiler nor linker sees that two headers, or two sources, define different classes, inline functions or
templates of the same name: the linker keeps one of each weak function and drops the rest, whatever they do. What is
local to a file belongs in an unnamed namespace, and what two headers share in a program has two names.

A program is all of src/ without tests, and with it either tools/, or the `_test.cc` files of a folder (one
executable), or tests/fuzz/, or one file of bench/. The check reads text, not C++: it follows braces and knows
namespaces, classes, enumerations, functions (told apart by their parameters), variables and gtest's TEST. Exit
status 1, with a line for each name, if a name has two definitions.
"""
import pathlib
import re
import sys
from collections import defaultdict
from typing import NamedTuple

TOKEN = re.compile(
    r'R"(?P<raw>[^()\s\\]*)\(.*?\)(?P=raw)"'
    r'|//[^\n]*|/\*.*?\*/'
    r'|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])+'"
    r"|[A-Za-z_]\w*"
    r"|\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*"
    r"|::|->|==|!=|<=|>=|&&|\|\||\+\+|--|[-+*/%&|^]=|\n|\S",
    re.S)
TYPES = {"class", "struct", "union", "enum"}
BUILT_IN = {"int", "char", "bool", "float", "double", "long", "short", "unsigned", "signed", "void", "auto", "const"}
OPENS, CLOSES = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class Definition(NamedTuple):
    name: str
    file: str
    line: int


def tokens_of(text):
    """[(token, line)] without comments and preprocessor lines."""
    text = re.sub(r"\\\n", lambda m: " \x01", text)  # a continued line stays one line; \x01 counts it
    found, line, skip, fresh = [], 1, False, True
    for match in TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line, skip, fresh = line + 1, False, True
            continue
        if token == "\x01":
            line += 1
            continue
        if token == "#" and fresh:
            skip = True
        fresh = False
        if not skip and not token.startswith(("//", "/*")):
            found.append((token, line))
        line += token.count("\n") + token.count("\x01")
    return found


def close_of(tokens, i):
    """The index of the bracket that closes the one at `i`."""
    depth = 0
    for j in range(i, len(tokens)):
        token = tokens[j][0]
        depth += (token in OPENS) - (token in CLOSES)
        if depth == 0:
            return j
    return len(tokens) - 1


def without_template_head(words):
    """`template <...>` and attributes in front, off; and how many parameters the templates have."""
    heads = []
    while words and words[0] in ("template", "[") or words[:1] == ["requires"]:
        if words[0] == "[":
            words = words[words.index("]") + 1:]
            words = words[1:] if words[:1] == ["]"] else words
            continue
        if words[0] == "requires":
            break
        depth, i = 0, 1
        while i < len(words):
            depth += (words[i] == "<") - (words[i] == ">")
            i += 1
            if depth == 0:
                break
        heads.append(words[1:i])
        words = words[i:]
    return words, heads


def parameter(words):
    """A parameter's type: without its name and default."""
    depth = 0
    for i, word in enumerate(words):
        depth += (word in OPENS or word == "<") - (word in CLOSES or word == ">")
        if word == "=" and depth == 0:
            words = words[:i]
            break
    named = len(words) > 1 and re.match(r"[A-Za-z_]", words[-1]) and words[-1] not in BUILT_IN
    if named and words[-2] != "::" and words[:-1] != ["const"]:
        words = words[:-1]
    return "".join(word + " " if re.match(r"\w", word) else word for word in words).strip()


def parameters(words):
    lists, depth = [[]], 0
    for word in words:
        depth += (word in OPENS or word == "<") - (word in CLOSES or word == ">")
        if word == "," and depth == 0:
            lists.append([])
        else:
            lists[-1].append(word)
    return ", ".join(parameter(one) for one in lists if one)


def name_before(words, at):
    """The (qualified) name that ends in front of words[at]."""
    i = at
    if "operator" in words[:at]:
        i = at - 1 - words[:at][::-1].index("operator")
        tail = "".join(words[i:at])
    else:
        i, tail = at - 1, words[at - 1] if at else ""
    while i >= 2 and words[i - 1] == "::":
        step = i - 2
        if words[step] == ">":  # a member of a template
            depth = 0
            while step >= 0:
                depth += (words[step] == ">") - (words[step] == "<")
                if depth == 0:
                    break
                step -= 1
            step -= 1
        tail, i = "".join(words[step:i]) + tail, step
    return tail


def defined_by(words, ended_by):
    """What the statement `words`, up to a brace or a semicolon, is: its kind, and the name that it defines if any."""
    words, heads = without_template_head(words)
    if not words or words[0] in ("using", "typedef", "extern", "static_assert", "friend", "namespace"):
        return "other", None
    if words[0] in TYPES and "(" not in words:
        end = words.index(":") if ":" in words else len(words)
        names = [word for word in words[1:end] if word not in ("class", "struct", "final")]
        while "[" in names:  # an attribute
            del names[names.index("["):close_of([(word, 0) for word in names], names.index("[")) + 1]
        if "=" not in names:
            return "type", "".join(names) if ended_by == "{" and names else None
    depth = 0
    for i, word in enumerate(words):
        if word == "operator":
            depth = -1000  # what follows is its name
        depth += (word == "<") - (word == ">")
        if word == "(" and depth <= 0 and words[i - 1] not in ("operator", "decltype", "noexcept", "alignas"):
            if words[i - 1] in ("TEST", "TEST_F", "TEST_P", "TYPED_TEST"):
                return "function", "".join(words[i + 1:words.index(")", i)]).replace(",", "_") + "_Test"
            if ended_by != "{" or "static" in words[:i]:
                return "function", None
            close = close_of([(word, 0) for word in words], i)
            return "function", (f"{'template ' * len(heads)}{name_before(words, i)}({parameters(words[i + 1:close])})"
                                f"{' const' if 'const' in words[close:] else ''}")
        if word == "=" and depth <= 0:
            words = words[:i]
            break
    if {"static", "constexpr", "const", "constinit"} & set(words) and "inline" not in words:
        return "variable", None  # of the file alone
    return "variable", name_before(words, len(words)) if len(words) > 1 and re.match(r"[A-Za-z_]", words[-1]) else None


def statement(tokens, i):
    """Words from `i` to a brace or semicolon outside of parentheses, and where that is."""
    words = []
    while i < len(tokens) and tokens[i][0] not in ("{", ";", "}"):
        end = close_of(tokens, i) + 1 if tokens[i][0] in OPENS else i + 1
        words += [token for token, _ in tokens[i:end]]
        i = end
    return words, i


def definitions_of(text, file):
    """What a file defines with external linkage, outside unnamed namespaces."""
    tokens, found, scopes, i = tokens_of(text), [], [], 0
    while i < len(tokens):
        line = tokens[i][1]
        words, i = statement(tokens, i)
        end = tokens[i][0] if i < len(tokens) else ";"
        namespace = words[words[:1] == ["inline"]:]
        if end == "}":
            del scopes[-1:]
        elif end == "{" and namespace[:1] == ["namespace"] and len(namespace) > 1:
            scopes.append("".join(namespace[1:]) + "::")
        elif end == "{" and words[:1] == ["extern"] and len(words) == 2:
            scopes.append("")
        elif end == "{" and namespace == ["namespace"]:
            i = close_of(tokens, i)  # unnamed: all inside is the file's own
        else:
            kind, name = defined_by(words, end)
            if name:
                found.append(Definition("".join(scopes) + name, file, line))
            if end == "{":
                i = close_of(tokens, i)
                # Behind a constructor's `: a_{1}` follow more members and its body; behind others, up to a semicolon.
                while i + 1 < len(tokens) and (tokens[i + 1][0] in (",", "{") if kind == "function"
                                               else tokens[i][0] != ";"):
                    _, i = statement(tokens, i + 1)
                    i = close_of(tokens, i) if i < len(tokens) and tokens[i][0] == "{" else i
        i += 1
    return found


def program_of(place):
    """The program that a file belongs to apart from what all hold: "" for src/ without tests."""
    if place.startswith("src/"):
        folder = place.split("/")[1]
        if not place.endswith("_test.cc"):
            return ""
        machine = re.match(r"src/machine/(exec|simulate)", place)
        return (machine[1] if machine else folder) + "_test"
    if place.startswith("bench/"):
        return "" if place.endswith(".h") else place
    return place.rsplit("/", 1)[0]


def twice(definitions):
    """Pairs of definitions of one name in two files of one program."""
    by_name = defaultdict(list)
    for one in definitions:
        by_name[one.name].append(one)
    for name, places in sorted(by_name.items()):
        for k, second in enumerate(places):
            for first in places[:k]:
                a, b = program_of(first.file), program_of(second.file)
                if first.file != second.file and (a == b or not a or not b):
                    yield first, second
                    break


def check_itself():
    """Planted pairs, so that a check which finds nothing is known to look."""
    def found(a, b, at=("src/a/a.h", "src/b/b.cc")):
        return [x.name for x, _ in twice(definitions_of(a, at[0]) + definitions_of(b, at[1]))]

    def namespaced(text):
        return "#include <x>\nnamespace myriad {\n" + text + "\n}  // namespace myriad\n"

    same = [
        ("struct A { int x; };", "class A final : public B { int y; };", "myriad::A"),
        ("enum class E { a, b };", "enum E : int { c };", "myriad::E"),
        ("inline int f(int a, const std::map<int, B>& b = {}) { return a; }",
         "int f(int x, const std::map<int, B>& y) { return x; }", None),
        ("template <class T> struct P<T*> { };", "template <class U> struct P<T*> { };", "myriad::P<T*>"),
        ("class [[nodiscard]] N { };", "struct alignas(8) M { };\nclass N : public B<A, C> { };", "myriad::N"),
        ("struct S {}; X::X(int a) : a_{a}, b_(2) {}\nstruct Z {};", "struct Z {};", "myriad::Z"),
        ("bool operator==(const A& a, const A& b) { return true; }",
         "bool operator==(const A& x, const A& y) { return 0; }", None),
        ("inline constexpr int kA = 3;", "inline constexpr int kA{4};", "myriad::kA"),
        ("std::vector<int> v = {1, 2};", "int v;", "myriad::v"),
        ("const char* kText = R\"(struct { \" )\"; struct Y {};", "struct Y {};", "myriad::Y"),
    ]
    for a, b, name in same:
        got = found(namespaced(a), namespaced(b))
        assert len(got) == 1 and name in (None, got[0]), (a, b, got)
    other = [
        ("struct A;", "struct A { };"),
        ("struct A { struct In { }; };", "struct B { struct In { }; };"),
        ("namespace { struct A { }; }", "struct A { };"),
        ("inline int f(int a) { return a; }", "inline int f(double a) { return a; }"),
        ("static int f(int a) { return a; }", "static int f(int a) { return a; }"),
        ("template <> struct P<int> { };", "template <> struct P<float> { };"),
        ("constexpr int kA = 3;", "constexpr int kA = 4;"),
        ("int f(int a);", "int f(int a) { return 1; }"),
        ("A f(B b) { struct L { }; return {}; }", "A g(B b) { struct L { }; return {}; }"),
        ("// struct A {};\n#define B struct A {}; \\\n struct C {};", "struct A {}; struct C {};"),
    ]
    for a, b in other:
        got = found(namespaced(a), namespaced(b))
        assert not got, (a, b, got)
    tests = "namespace myriad {\nTEST(A, B) { int x; }\nstruct T {}; }"
    assert found(tests, tests, ("src/a/a_test.cc", "src/a/b_test.cc")) == ["myriad::A_B_Test", "myriad::T"]
    assert not found(tests, tests, ("src/a/a_test.cc", "src/b/b_test.cc"))


def main():
    check_itself()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    definitions = []
    for top in ("src", "tools", "tests/fuzz", "bench"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in (".h", ".cc", ".inc"):
                definitions += definitions_of(file.read_text(encoding="utf-8"), file.relative_to(root).as_posix())
    found = list(twice(definitions))
    for first, second in found:
        print(f"{second.file}:{second.line}: {second.name} is also defined in {first.file}:{first.line}; "
              "rename one, or move what is local into an unnamed namespace")
    print(f"check_definitions: {len(definitions)} definitions, {len(found)} of them second ones")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
