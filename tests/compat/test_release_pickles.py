"""Pickles of op-level models, of the package and of what `contrib.install` provides."""

import copy
import functools
import json
import pickle
import sys

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import contrib
from cudnn_rnn.contrib import releases
from helpers.processes import output_of

MINORS = range(16)


def ops_of(minor):
    return releases.namespaces(minor)["python.ops.cudnn_rnn_ops"]


@pytest.mark.parametrize("minor", [None, *MINORS])
@pytest.mark.parametrize("name", ["CudnnGRU", "CudnnLSTM", "CudnnRNNRelu", "CudnnRNNTanh"])
def test_models(name, minor):
    rnn_class = getattr(cudnn_rnn, name) if minor is None else ops_of(minor)[name]
    # Programs print classes and search for the name, so it must be the original's.
    assert rnn_class.__name__ == name and name in str(rnn_class)
    named = dict(direction="bidirectional", dropout=0.25, seed=3)
    if minor is None or minor >= 4:
        named["dtype"] = tf.float16
    model = rnn_class(2, 4, 4, **named)
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    copies = [pickle.loads(pickle.dumps(model, protocol)) for protocol in protocols]
    for copied in copies + [copy.deepcopy(model), copy.copy(model)]:
        assert type(copied) is rnn_class
        assert copied.config == model.config and copied.dtype == model.dtype
        assert copied._num_params() == model._num_params()


@pytest.mark.parametrize("minor", MINORS)
def test_classes_and_functions(minor):
    """Classes and functions survive pickling, also inside a `functools.partial`."""
    for place, module in releases.namespaces(minor).items():
        if place.endswith("gen_cudnn_rnn_ops"):
            continue  # TensorFlow's own, some of which it cannot pickle
        for name, value in module.items():
            if callable(value):
                assert pickle.loads(pickle.dumps(value)) is value, name
                assert pickle.loads(pickle.dumps(functools.partial(value))).func is value


def installed_model(version):
    contrib.install(version)
    try:
        ops = sys.modules["tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops"]
        return ops.CudnnGRU(1, 4, 4)
    finally:
        contrib.uninstall()


@pytest.mark.sampled(4)
def test_installed_models_in_another_process(tmp_path):
    models = [installed_model(version) for version in ("1.0", "1.3", "1.8", "1.15")]
    path = tmp_path / "models"
    path.write_bytes(pickle.dumps([pickle.dumps(model) for model in models]))
    program = "import json, pickle, sys; models = pickle.load(open(sys.argv[1], 'rb')); "
    program += "print(json.dumps([pickle.loads(model)._num_params() for model in models]))"
    found = json.loads(output_of("-c", program, path))
    assert found == [model._num_params() for model in models]


def test_unknown_names_raise_attribute_error():
    for name in ("CudnnLSTM_of_1_16", "CudnnLSTM_of_1_x", "Nothing_of_1_3", "Nope"):
        with pytest.raises(AttributeError, match=name):
            getattr(releases, name)
