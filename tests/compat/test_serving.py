"""TensorFlow's errors for graphs run elsewhere must be as docs/serving.md and the doctor quote."""

import json
import os

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
from helpers.paths import ROOT
from helpers.processes import output_of
from helpers.rnn_models import initialize, make_params, saveable_b
from helpers.versions import IS_TENSORFLOW_1

pytestmark = pytest.mark.ci

# Runs a network of one unit in a process, in stages, most of which do not import the package.
# Prints JSON: the output or the error of each stage.
PROGRAM = """
import json, sys
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

def run(device, allow_soft_placement=False):
    with tf.Graph().as_default(), tf.device(device):
        one = tf.ones([1, 1, 1])
        outputs = tf.raw_ops.CudnnRNN(input=one, input_h=one, input_c=tf.ones([0]),
                                      params=tf.ones([4]), rnn_mode="rnn_relu", is_training=False)
        config = tf.ConfigProto(allow_soft_placement=allow_soft_placement)
        with tf.Session(config=config) as session:
            return session.run(outputs)[0].tolist()

def run_eagerly():
    with context.eager_mode():
        one = tf.ones([1, 1, 1])
        tf.raw_ops.CudnnRNN(input=one, input_h=one, input_c=one, params=one, is_training=False)

def run_with_library():
    tf.load_op_library(sys.argv[1])
    return run("/cpu:0")

def run_with_package():
    import cudnn_rnn
    return run("/cpu:0")

results = {}
for name, stage in [
    ("not imported", lambda: run("/cpu:0")),
    ("eager", run_eagerly),
    ("library alone", run_with_library),
    ("imported", run_with_package),
    ("pinned", lambda: run("/gpu:0")),
    ("soft placement", lambda: run("/gpu:0", True)),
]:
    try:
        results[name] = stage()
    except Exception as error:
        results[name] = str(error)
print(json.dumps(results))
"""
NO_KERNEL = "No OpKernel was registered to support Op 'CudnnRNN"
NO_DEVICE = "Cannot assign a device for operation"
NO_EAGER_DEVICE = "Could not find device for node"


@pytest.mark.sampled(4)
def test_quoted_errors_are_those_of_tensorflow():
    expected = {
        "not imported": NO_KERNEL,
        "eager": "" if IS_TENSORFLOW_1 else NO_EAGER_DEVICE + ": {{node CudnnRNN}}",
        "library alone": None,
        "imported": None,
        "pinned": NO_DEVICE,
        "soft placement": None,
    }
    arguments = ("-W", "ignore", "-c", PROGRAM, library.library_path())
    results = json.loads(output_of(*arguments, CUDA_VISIBLE_DEVICES="").splitlines()[-1])
    for stage, error in expected.items():
        if error is None:
            assert results[stage] == [[[4.0]]], stage
        else:
            assert error in results[stage], stage


def test_restoring_says_that_the_graph_is_pinned(tmp_path):
    with tf.Graph().as_default():
        with tf.device("/gpu:7"):
            model = cudnn_rnn.CudnnGRU(1, 2, 2)
            saver = tf.train.Saver([saveable_b(model, make_params(model), "x")])
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            initialize(session)
            path = saver.save(session, str(tmp_path / "model"))
            saver.restore(session, path)
        with tf.Session() as session:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                saver.restore(session, path)
    message = str(caught.value)
    assert message.startswith("The checkpoint %s cannot be restored: the graph is pinned" % path)
    assert "allow_soft_placement=True" in message and NO_DEVICE in message


def test_documentation_and_doctor_have_the_errors_and_the_fixes():
    texts = [doctor._ERRORS_OF_PROGRAMS]
    for name in ("serving.md", "troubleshooting.md"):
        with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as file:
            texts.append(file.read())
    for expected in (NO_KERNEL, NO_DEVICE, NO_EAGER_DEVICE, "allow_soft_placement"):
        assert [expected in text for text in texts] == [True, True, True]
