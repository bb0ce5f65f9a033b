"""The repository @local_tensorflow: headers and link flags of the TensorFlow that configure.py found."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "tensorflow",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = {link_flags},
)
"""

def _tensorflow_repository(context):
    include_folder = context.os.environ.get("CUDNN_RNN_TENSORFLOW_INCLUDE")
    if not include_folder:
        fail("No TensorFlow is configured. Run `python configure.py` with the Python that has it.")
    context.symlink(include_folder, "include")
    link_flags = context.os.environ["CUDNN_RNN_TENSORFLOW_LINK_FLAGS"].split("\t")
    context.file("BUILD", _BUILD.format(link_flags = repr(link_flags)))

tensorflow_repository = repository_rule(
    implementation = _tensorflow_repository,
    environ = ["CUDNN_RNN_TENSORFLOW_INCLUDE", "CUDNN_RNN_TENSORFLOW_LINK_FLAGS"],
    local = True,
)
