#!/usr/bin/env python3
"""Builds corpus/documents.jsonl, Chinese and English technical prose, from the documentation packages of Debian.

Needs apt-get and dpkg-deb and, the first time, the network. The packages lie in OUT/packages; OUT/done.json tells what
the documents were made of, and a corpus that is done is left alone. Exit status 2: it cannot be built, and why.
"""
import argparse
import collections
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

import markup

RECIPE = 1  # raise when the same packages give other documents
LEAST_BYTES, MOST_BYTES = 200, 64_000
LEAST_HANZI = 0.10  # of the characters of a Chinese document; below, it was never translated

Source = collections.namedtuple("Source", "package files lang text most_bytes")
KERNEL = "linux-doc"  # stands for the package that it depends on
SOURCES = [
    Source("manpages-zh", r"usr/share/man/zh_CN/man\d/", "zh", markup.man_text, None),
    Source("fortunes-zh", r"usr/share/games/fortunes/(?:chinese|tang300|song100)$", "zh", markup.fortunes, None),
    Source(KERNEL, r"usr/.*/Documentation/translations/zh_CN/.*\.rst(?:\.gz)?$", "zh", markup.rst_text, None),
    Source("libreoffice-help-zh-cn", r"usr/.*/zh-CN/text/.*\.html$", "zh", markup.html_text, None),
    Source("debian-handbook", r"usr/.*/html/zh-CN/[^/]*\.html$", "zh", markup.html_text, None),
    Source("debian-reference-zh-cn", r"usr/.*/(?:ch|ap|pr)\d*a?\.zh-cn\.html$", "zh", markup.html_text, None),
    Source("debian-faq-zh-cn", r"usr/.*/FAQ/zh-cn/.*\.html$", "zh", markup.html_text, None),
    Source("installation-guide-amd64", r"usr/.*/zh_CN/[^/]*\.html$", "zh", markup.html_text, None),
    Source(KERNEL, r"usr/.*/Documentation/(?!translations/|ABI/|devicetree/).*\.rst(?:\.gz)?$", "en",
           markup.rst_text, 7_000_000),
    Source("libreoffice-help-en-us", r"usr/.*/en-US/text/.*\.html$", "en", markup.html_text, None),
    Source("debian-handbook", r"usr/.*/html/en-US/[^/]*\.html$", "en", markup.html_text, None),
    Source("debian-reference-en", r"usr/.*/(?:ch|ap|pr)\d*a?\.en\.html$", "en", markup.html_text, None),
    Source("debian-faq", r"usr/.*/FAQ/[^/]*\.html$", "en", markup.html_text, None),
    Source("installation-guide-amd64", r"usr/.*/installation-guide-amd64/en/[^/]*\.html$", "en", markup.html_text,
           None),
]


def say(text):
    print(f"corpus: {text}", file=sys.stderr, flush=True)


def give_up(text):
    say(text)
    sys.exit(2)


def output_of(*command):
    environment = dict(os.environ, LC_ALL="C")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    return (done.stdout if done.returncode == 0 else None), done.stderr.strip()


def kernel_package():
    depends, _ = output_of("apt-cache", "depends", KERNEL)
    names = re.findall(r"Depends: (linux-doc-\S+)", depends or "")
    return names[0] if names else None


def wanted_debs(packages):
    """{package: (file name, bytes, its name for apt)} as apt would download them now, and what is missing."""
    debs, missing = {}, []
    for package in packages:
        name = kernel_package() if package == KERNEL else package
        uris, _ = output_of("apt-get", "download", "--print-uris", name) if name else (None, "")
        found = re.search(r"^'[^']*' (\S+\.deb) (\d+)", uris or "", re.M)
        if found:
            debs[package] = (found[1], int(found[2]), name)
        else:
            missing.append(package)
    return debs, missing


def fetch(folder, packages):
    """{package: .deb file in folder}, downloaded where it is not there yet."""
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if not shutil.which(tool):
            give_up(f"{tool} is missing: the corpus is made of Debian packages")
    debs, missing = wanted_debs(packages)
    if missing and os.geteuid() == 0:
        say("refreshing apt's package lists")
        output_of("apt-get", "update", "-q")
        debs, missing = wanted_debs(packages)
    if missing:
        give_up(f"apt knows no package {', '.join(missing)} (are the lists old? `apt-get update` as root)")
    folder.mkdir(parents=True, exist_ok=True)
    absent = [(name, size) for file, size, name in debs.values()
              if not (folder / file).exists() or (folder / file).stat().st_size != size]
    if absent:
        say(f"fetching {len(absent)} packages, {sum(size for _, size in absent) / 1e6:.0f} MB")
        command = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root"] + [name for name, _ in absent]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            give_up(f"apt-get download failed: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return {package: folder / file for package, (file, _, _) in debs.items()}


def files_in(deb, patterns):
    """{pattern: [(path, text)]} of the regular files in a package, without unpacking it to disk."""
    found = {pattern: [] for pattern in patterns}
    compiled = {pattern: re.compile(pattern) for pattern in patterns}
    tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=tar.stdout, mode="r|") as archive:
        for member in archive:
            path = member.name[2:] if member.name.startswith("./") else member.name
            for pattern, expression in compiled.items():
                if member.isfile() and expression.match(path):
                    data = archive.extractfile(member).read()
                    data = gzip.decompress(data) if path.endswith(".gz") else data
                    found[pattern].append((path, data.decode("utf-8", errors="replace")))
    if tar.wait() != 0:
        give_up(f"{deb} is damaged; delete it and run this again")
    return found


def hanzi_share(text):
    return len(markup.HANZI.findall(text)) / max(1, len(text))


def pieces(text):
    """The text, cut at paragraph ends (else at line ends) so that no piece has more than MOST_BYTES."""
    if len(text.encode()) <= MOST_BYTES:
        return [text]
    cut, size = [""], 0
    for part in re.split(r"(?<=\n)", text):
        part_bytes = len(part.encode())
        paragraph_ended = cut[-1].endswith("\n\n")
        if cut[-1] and (size + part_bytes > MOST_BYTES or (paragraph_ended and size > MOST_BYTES * 3 // 4)):
            cut.append("")
            size = 0
        cut[-1] += part
        size += part_bytes
    return [piece.strip("\n") for piece in cut]


def documents_of(source, files):
    """Documents of one source by path; where only a part is wanted, an even choice: by hash of the path."""
    if source.most_bytes:
        files = sorted(files, key=lambda file: hashlib.md5(file[0].encode()).digest())
    chosen, size = [], 0
    for path, raw in files:
        texts = source.text(raw, source.lang)
        for text in [texts] if isinstance(texts, str) else texts:
            if "\ufffd" in text or (source.lang == "zh" and hanzi_share(text) < LEAST_HANZI):
                continue
            for piece in pieces(text):
                bytes_ = len(piece.encode())
                if LEAST_BYTES <= bytes_ <= MOST_BYTES:
                    chosen.append((path, piece))
                    size += bytes_
        if source.most_bytes and size >= source.most_bytes:
            break
    return sorted(chosen, key=lambda document: document[0])


def collect(debs):
    seen, documents = set(), []
    contents = {package: files_in(deb, [s.files for s in SOURCES if s.package == package])
                for package, deb in debs.items()}
    for source in SOURCES:
        before, bytes_ = len(documents), 0
        for path, text in documents_of(source, sorted(contents[source.package][source.files])):
            digest = hashlib.sha256(text.encode()).digest()
            if digest in seen:
                continue
            seen.add(digest)
            name = re.sub(r"^usr/share/(?:doc/)?", "", path)
            documents.append({"text": text, "source": f"{source.package}:{name}", "lang": source.lang})
            bytes_ += len(text.encode())
        say(f"{source.package} ({source.lang}): {len(documents) - before} documents, {bytes_ / 1e6:.2f} MB")
        if len(documents) == before:
            give_up(f"{source.package} holds no text where it was expected ({source.files})")
    return documents


def write_aside(path, text):
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


def already_done(out):
    try:
        done = json.loads((out / "done.json").read_text())
        return done["recipe"] == RECIPE and (out / "documents.jsonl").stat().st_size == done["bytes"]
    except (OSError, ValueError, KeyError):
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="corpus", type=pathlib.Path, help="folder of the corpus (default: corpus)")
    parser.add_argument("--refresh", action="store_true", help="build again, from the packages apt offers now")
    options = parser.parse_args()
    out = options.out
    if already_done(out) and not options.refresh:
        return
    start = time.monotonic()
    debs = fetch(out / "packages", list(dict.fromkeys(source.package for source in SOURCES)))
    documents = collect(debs)
    lines = io.StringIO()
    for document in documents:
        lines.write(json.dumps(document, ensure_ascii=False) + "\n")
    write_aside(out / "documents.jsonl", lines.getvalue())
    by_lang = collections.Counter()
    for document in documents:
        by_lang[document["lang"]] += len(document["text"].encode())
    done = {"recipe": RECIPE, "packages": sorted(deb.name for deb in debs.values()), "documents": len(documents),
            "text_bytes": dict(by_lang), "bytes": (out / "documents.jsonl").stat().st_size}
    write_aside(out / "done.json", json.dumps(done, indent=1) + "\n")
    told = ", ".join(f"{lang} {size / 1e6:.1f} MB" for lang, size in sorted(by_lang.items()))
    say(f"{len(documents)} documents ({told}) in {time.monotonic() - start:.0f} s: {out / 'documents.jsonl'}")


if __name__ == "__main__":
    main()
