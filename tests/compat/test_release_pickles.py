"""Pickles of the objects that `contrib.install` provides, also read where nothing is installed."""

import copy
import functools
import pickle
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import contrib
from cudnn_rnn.contrib import releases

MINORS = range(16)
MODELS = ["CudnnGRU", "CudnnLSTM", "CudnnRNNRelu", "CudnnRNNTanh"]


def ops_of(minor):
    return releases.namespaces(minor)["python.ops.cudnn_rnn_ops"]


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.parametrize("name", MODELS)
def test_models(name, minor):
    rnn_class = ops_of(minor)[name]
    model = rnn_class(2, 4, 4, direction="bidirectional", dropout=0.25)
    copies = [
        pickle.loads(pickle.dumps(model, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for copied in copies + [copy.deepcopy(model), copy.copy(model)]:
        assert type(copied) is rnn_class
        assert copied.config == model.config and copied._num_params() == model._num_params()


@pytest.mark.parametrize("minor", MINORS)
def test_classes_and_functions(minor):
    """Classes and functions survive pickling, also inside a `functools.partial`."""
    for module in releases.namespaces(minor).values():
        for name, value in module.items():
            if callable(value):
                assert pickle.loads(pickle.dumps(value)) is value, name
                assert pickle.loads(pickle.dumps(functools.partial(value))).func is value


def test_names_of_classes():
    """Programs print classes and search for the name, so it must be the original's."""
    for minor in MINORS:
        for name in MODELS:
            rnn_class = ops_of(minor)[name]
            assert rnn_class.__name__ == name and name in str(rnn_class)
    assert len({ops_of(minor)["CudnnLSTM"].__qualname__ for minor in MINORS}) == len(MINORS)


@pytest.mark.parametrize("version", ["1.0", "1.3", "1.8", "1.15"])
def test_installed_model_in_another_process(version):
    contrib.install(version)
    try:
        ops = sys.modules["tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops"]
        model = ops.CudnnGRU(1, 4, 4)
        data = pickle.dumps(model)
    finally:
        contrib.uninstall()
    program = "import pickle; model = pickle.loads(%r); print('size', model._num_params())" % data
    output = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert "size %d" % model._num_params() in output.stdout, output.stderr


@pytest.mark.parametrize(
    "name", ["CudnnLSTM_of_1_16", "CudnnLSTM_of_1_x", "Nothing_of_1_3", "Nope"]
)
def test_unknown_names_raise_attribute_error(name):
    with pytest.raises(AttributeError, match=name):
        getattr(releases, name)


def test_dtype_survives():
    model = ops_of(13)["CudnnGRU"](1, 4, 4, dtype=tf.float16)
    assert pickle.loads(pickle.dumps(model)).dtype == tf.float16
