"""Writes TensorFlow's flags to `.tf_configure.bazelrc`, which `.bazelrc` imports.

Run `python configure.py` with the Python that has TensorFlow.
"""

import os
import shlex

import build_support

OUTPUT = os.path.join(build_support.ROOT, ".tf_configure.bazelrc")


def main():
    tensorflow = build_support.find_tensorflow()
    options = [
        "--repo_env=CUDNN_RNN_TENSORFLOW_INCLUDE=" + tensorflow.include_folder,
        "--repo_env=CUDNN_RNN_TENSORFLOW_LINK_FLAGS=" + "\t".join(tensorflow.link_flags),
    ] + ["--cxxopt=" + flag for flag in tensorflow.definition_flags]
    with open(OUTPUT, "w") as file:
        for option in options:
            file.write("build %s\n" % shlex.quote(option))
    print("Configured for TensorFlow %s. Next:" % tensorflow.version)
    print("    bazel build //:cudnn_rnn/_cudnn_rnn_ops.so")


if __name__ == "__main__":
    main()
