"""Writes TensorFlow's flags to `.tf_configure.bazelrc`, which `.bazelrc` imports.

Run `python configure.py` with the Python that has TensorFlow.
"""

import os
import shlex

import build_support

OUTPUT = os.path.join(build_support.ROOT, ".tf_configure.bazelrc")


def main():
    tensorflow = build_support.find_tensorflow()
    (include_folder,) = tensorflow["include_folders"]
    library_folder, library = os.path.split(tensorflow["library"])
    link_flags = ["-L" + library_folder, "-l:" + library]
    definitions = [
        *tensorflow["definitions"],
        "_GLIBCXX_USE_CXX11_ABI=%d" % tensorflow["cxx11_abi"],
    ]
    options = [
        "--repo_env=CUDNN_RNN_TENSORFLOW_INCLUDE=" + include_folder,
        "--repo_env=CUDNN_RNN_TENSORFLOW_LINK_FLAGS=" + "\t".join(link_flags),
        "--cxxopt=-std=c++%d" % tensorflow["cxx_standard"],
    ] + ["--cxxopt=-D" + definition for definition in definitions]
    with open(OUTPUT, "w") as file:
        for option in options:
            file.write("build %s\n" % shlex.quote(option))
    print("Configured for TensorFlow %s. Next:" % tensorflow["version"])
    print("    bazel build //:cudnn_rnn/_libraries/ops.so")


if __name__ == "__main__":
    main()
