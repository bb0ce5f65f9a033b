"""TensorFlow's errors for graphs run elsewhere must be as docs/serving.md and the doctor quote."""

import os
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
from helpers.paths import ROOT
from helpers.versions import IS_TENSORFLOW_1

# Runs a network of one unit on the device argv[1]; the tests prepend code.
PROGRAM = """
import sys
import tensorflow.compat.v1 as tf
with tf.Graph().as_default(), tf.device(sys.argv[1]):
    one = tf.ones([1, 1, 1])
    outputs = tf.raw_ops.CudnnRNN(input=one, input_h=one, input_c=tf.ones([0]), params=tf.ones([4]),
                                  rnn_mode="rnn_relu", is_training=False)
    config = tf.ConfigProto(allow_soft_placement=len(sys.argv) > 2, device_count={"GPU": 0})
    with tf.Session(config=config) as session:
        print(session.run(outputs)[0])
"""
NO_KERNEL = "No OpKernel was registered to support Op 'CudnnRNN"
NO_DEVICE = "Cannot assign a device for operation"


def run(first, *arguments):
    """Runs the program; returns (status, output)."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", first + PROGRAM] + list(arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env=dict(os.environ, CUDA_VISIBLE_DEVICES=""),
    )
    return process.returncode, process.stdout


@pytest.mark.parametrize(
    "first, arguments, error",
    [
        ("", ["/cpu:0"], NO_KERNEL),
        ("import cudnn_rnn", ["/cpu:0"], None),
        ("import tensorflow; tensorflow.load_op_library(%r)", ["/cpu:0"], None),
        ("import cudnn_rnn", ["/gpu:0"], NO_DEVICE),
        ("import cudnn_rnn", ["/gpu:0", "allow_soft_placement"], None),
    ],
    ids=["not_imported", "imported", "library_alone", "pinned", "soft_placement"],
)
def test_quoted_errors_are_those_of_tensorflow(first, arguments, error):
    if "%r" in first:
        first = first % library.library_path()
    status, printed = run(first, *arguments)
    if error is None:
        assert status == 0 and "[[[4.]]]" in printed, printed
    else:
        assert status != 0 and error in printed, printed


def test_eager_execution_without_the_import():
    if IS_TENSORFLOW_1:
        pytest.skip("requires TensorFlow 2, whose eager errors are checked")
    program = "import tensorflow as tf; one = tf.ones([1, 1, 1]); tf.raw_ops.CudnnRNN(input=one, "
    program += "input_h=one, input_c=one, params=one, is_training=False); "
    status, printed = run(program, "/cpu:0")
    assert status != 0 and "Could not find device for node: {{node CudnnRNN}}" in printed, printed


def test_restoring_says_that_the_graph_is_pinned(tmp_path):
    with tf.device("/gpu:7"):
        model = cudnn_rnn.CudnnGRU(1, 2, 2)
        params = tf.get_variable("params", initializer=tf.zeros([model.params_size()]))
        functions = (model.params_to_canonical, model.canonical_to_params)
        saver = tf.train.Saver([cudnn_rnn.RNNParamsSaveable(model, *functions, [params], "x")])
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        session.run(tf.global_variables_initializer())
        path = saver.save(session, str(tmp_path / "model"))
        saver.restore(session, path)
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            saver.restore(session, path)
    message = str(caught.value)
    assert message.startswith("The checkpoint %s cannot be restored: the graph is pinned" % path)
    assert "allow_soft_placement=True" in message and NO_DEVICE in message


def test_documentation_and_doctor_have_the_errors_and_the_fixes():
    with open(os.path.join(ROOT, "docs", "serving.md"), encoding="utf-8") as file:
        page = file.read()
    for text in (NO_KERNEL, NO_DEVICE, "Could not find device for node", "allow_soft_placement"):
        assert text in page and text in doctor._ERRORS_OF_PROGRAMS
