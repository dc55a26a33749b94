#!/usr/bin/env python3
"""Makes data/sample/documents.jsonl: a small Chinese and English corpus, free of rights, that is committed.

The works are taken from Debian packages; every one of them is in the public domain (data/sample/README.md). Run it
again only to change the choice. Exit status 2: a package or a work is missing.
"""
import argparse
import gzip
import json
import pathlib
import re
import subprocess
import tempfile

import corpus
import markup

PACKAGES = ["fortunes-zh", "bible-kjv", "bible-kjv-text", "dict-devil", "miscfiles"]
BOOKS = {"论语": 79_000, "道德经": 22_000, "增广贤文": 15_000}  # bytes at most
SCRIPTURE = [("Gen", range(1, 12)), ("Ruth", range(1, 5)), ("Ps", range(1, 25)), ("Prov", range(1, 6)),
             ("Eccl", range(1, 13)), ("Matt", range(5, 8))]
DICTIONARY_BYTES = 48_000


def joined(entries, least_bytes):
    """Neighbouring short entries as documents of at least so many bytes."""
    held = []
    for entry in entries:
        held.append(entry)
        if len("\n\n".join(held).encode()) >= least_bytes:
            yield "\n\n".join(held)
            held = []
    if held:
        yield "\n\n".join(held)


def entries_of(path):
    text = markup.ANSI.sub("", path.read_text("utf-8"))
    entries = [markup.tidy(entry) for entry in re.split(r"\n%(?:\n|\Z)", text)]
    return [entry for entry in entries if entry]


def chinese(root):
    fortunes = root / "usr/share/games/fortunes"
    for name, title in (("tang300", "Three Hundred Tang Poems"), ("song100", "Song poems")):
        for text in joined(entries_of(fortunes / name), 600):
            yield title, text
    for book, most_bytes in BOOKS.items():
        signature = re.compile(rf"\n\s*--\s*《{book}》.*\Z")
        entries, size = [], 0
        for entry in entries_of(fortunes / "chinese"):
            if signature.search(entry) and size < most_bytes:
                entries.append(signature.sub("", entry))
                size += len(entries[-1].encode())
        for text in joined(entries, 1200):
            yield f"《{book}》", f"《{book}》\n\n{text}"


def chapter(root, book, number):
    command = [str(root / "usr/bin/bible"), "-l9999", "-p", str(root / "usr/lib"), f"{book}{number}:1-999"]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    title = next(line for line in shown.split("\n") if line.strip())
    verses = re.findall(r"^\s*\d+ (\S.*)$", shown, re.M)
    return f"{title}\n\n" + "\n".join(verses)


def english(root):
    for book, numbers in SCRIPTURE:
        for number in numbers:
            yield "King James Bible", chapter(root, book, number)
    for name in ("us-declaration", "us-constitution"):
        text = markup.tidy(gzip.decompress((root / f"usr/share/state/{name}.gz").read_bytes()).decode("ascii"))
        for piece in joined(re.split(r"\n\n(?=\S)", text), 3000):
            yield name, piece
    text = gzip.decompress((root / "usr/share/dictd/devil.dict.dz").read_bytes()).decode("latin-1")
    text = text[text.index("ABASEMENT, n."):][:DICTIONARY_BYTES]
    entries = re.split(r"\n\n(?=[A-Z'-]+, (?:n|v|adj|adv)\.)", text)[:-1]
    for piece in joined([markup.tidy(entry) for entry in entries], 2000):
        yield "The Devil's Dictionary", piece


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=pathlib.Path(__file__).parent.parent / "data/sample", type=pathlib.Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        for deb in corpus.fetch(pathlib.Path(folder), PACKAGES).values():
            subprocess.run(["dpkg-deb", "-x", str(deb), str(root)], check=True)
        documents = [{"text": text, "source": source, "lang": lang}
                     for lang, texts in (("zh", chinese(root)), ("en", english(root))) for source, text in texts]
    out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    corpus.write_aside(out / "documents.jsonl", lines)
    for lang in ("zh", "en"):
        texts = [document["text"] for document in documents if document["lang"] == lang]
        corpus.say(f"{lang}: {len(texts)} documents, {sum(len(text.encode()) for text in texts)} bytes")
    corpus.say(f"{len(lines.encode())} bytes: {out / 'documents.jsonl'}")


if __name__ == "__main__":
    main()
