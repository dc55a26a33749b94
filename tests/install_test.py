#!/usr/bin/env python3
"""Installs the program into a temporary folder and runs it there: install_test.py BUILD.

The installed tree must hold all that the program reads, and must not look into the checkout: where user and mount
namespaces are allowed, an empty folder hides the checkout while the program runs.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CMAKE = "/usr/bin/cmake" if os.access("/usr/bin/cmake", os.X_OK) else "cmake"


def run(command, **options):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def hiding():
    """Words in front of a command that let it run where the checkout cannot be seen; none where that is forbidden."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', ROOT]
    if not shutil.which("unshare"):
        return []
    tried = subprocess.run([*words, "true"], capture_output=True)
    return words if tried.returncode == 0 else []


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        run([CMAKE, "--install", build, "--prefix", folder / "made"])
        tree = folder / "moved"
        (folder / "made").rename(tree)  # it runs from anywhere, not only from where it was put
        for name in ("bin/myriad", "share/doc/myriad/LICENSE", "share/doc/myriad/NOTICE", "share/myriad/examples/tiny.yaml"):
            assert (tree / name).is_file(), f"{name} is not installed"
        for file in (ROOT / "clusters").rglob("*.yaml"):
            assert (tree / "share/myriad" / file.relative_to(ROOT)).is_file(), f"{file} is not installed"
        assert str(ROOT).encode() not in (tree / "bin/myriad").read_bytes(), "the program holds the checkout's path"

        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        environment = {"HOME": str(elsewhere), "PATH": os.environ["PATH"], "PWD": str(elsewhere)}
        # Within a build folder the checkout holds, hence, this folder too: then it is not hidden.
        hide = hiding() if ROOT not in folder.resolve().parents else []
        example = tree / "share/myriad/examples/telechat2-39b.yaml"
        out = run([*hide, tree / "bin/myriad", "simulate", example, "--cluster", "h100"],
                  cwd=elsewhere, env=environment)
        assert "h100" in out, out
    print("install_test:", "the checkout was hidden" if hide else "no namespaces: the checkout was not hidden")


if __name__ == "__main__":
    main()
