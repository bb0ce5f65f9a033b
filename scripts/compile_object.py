"""Compiles a source for cpp_build.sh: compile_object.py COMPILER FLAG... SOURCE OBJECT

An object of the core that has been compiled with the same flags before, as for the package itself,
comes from the build cache (build_cache.py).
"""

import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import build_support  # noqa: E402


def main(arguments):
    compiler, *flags, source, path = arguments
    core = build_support.CoreCompiler(shlex.split(compiler), flags)
    if core.is_core(source):
        print("compiling " + core.compile(source, path), flush=True)
        return 0
    print("compiling " + source, flush=True)
    return subprocess.call([*shlex.split(compiler), *flags, "-c", source, "-o", path])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
