"""Every name of `tf.contrib.cudnn_rnn` in every release exists here, or has a reason not to.

`tests/golden/contrib_names.txt` lists the names; `tests/programs/contrib_names.py` made it.
"""

import importlib
import os
import re

import pytest

import cudnn_rnn.contrib
from helpers.paths import GOLDEN

PACKAGE = "tensorflow.contrib.cudnn_rnn"
MINORS = range(16)

# What is missing on purpose: a pattern for "module:name", and the reason.
MISSING = {
    r":_allowed_symbols": "a list that only TensorFlow's own cleaning of the namespace read",
    r"ops\.gen_cudnn_rnn_ops:(_InitOpDefLibrary|_op_def_lib|_cudnn_rnn\w*_outputs)": (
        "parts of generated code, which TensorFlow no longer generates"
    ),
    r"python\.(ops\.cudnn_rnn_ops|layers\.cudnn_rnn):_cudnn_rnn_ops_so": (
        "a library of ops; the ops are in TensorFlow itself since 1.8"
    ),
    r"python\.ops\.cudnn_rnn_ops:_cudnn_rnn_backward": (
        "the registered gradient, which TensorFlow itself registers since 1.9"
    ),
    r"python\.ops\.cudnn_rnn_ops:(RNNParamsSaveable\._(switch|(un)?transform)\w*"
    r"|_flatten_transpose|_transpose_reshape)": (
        "steps of the conversion of 1.3, in one release only; CudnnLSTMSaveable has steps that "
        "programs override"
    ),
    r"python\.ops\.cudnn_rnn_ops:Cudnn\w+Saveable\._TransformSingleLayerCanonical": (
        "a step that appends to four lists; programs override the steps that it calls, which exist"
    ),
    r"python\.ops\.cudnn_rnn_ops:Cudnn\w+Saveable\._(add_checkpointable_\w+"
    r"|(checkpointable|trackable)_\w+)": (
        "steps of tf.train.Checkpoint, whose interface changed with every release"
    ),
}


@pytest.fixture(autouse=True)
def uninstalled():
    yield
    cudnn_rnn.contrib.uninstall()


def read_names():
    """Returns a list of (module, name, minor release numbers)."""
    names = []
    with open(os.path.join(GOLDEN, "contrib_names.txt")) as file:
        for line in file:
            key, releases = line.split(" ")
            minors = set()
            for part in releases.strip().split(","):
                first, _, last = part.replace("1.", "").partition("-")
                minors.update(range(int(first), int(last or first) + 1))
            names.append((*key.split(":"), minors))
    return names


def find(module, name):
    """Returns whether the installed `tf.contrib.cudnn_rnn` has the name, such as "Class.method"."""
    try:
        found = importlib.import_module((PACKAGE + "." + module).rstrip("."))
        for part in filter(None, name.split(".")):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return True


def reason_of(module, name):
    """Returns the reason why a name is missing, None if it should exist."""
    key = "%s:%s" % (module, name)
    return next((why for pattern, why in MISSING.items() if re.fullmatch(pattern, key)), None)


@pytest.mark.parametrize("minor", MINORS)
def test_names_of_the_release(minor):
    cudnn_rnn.contrib.install("1.%d" % minor)
    of_release = [(module, name) for module, name, minors in read_names() if minor in minors]
    assert len(of_release) > 25
    missing = [key for key in of_release if not find(*key) and reason_of(*key) is None]
    assert not missing


def test_no_reason_is_out_of_date():
    unused = {
        pattern
        for pattern in MISSING
        if not any(re.fullmatch(pattern, "%s:%s" % key[:2]) for key in read_names())
    }
    assert not unused
    present = []
    for minor in MINORS:
        cudnn_rnn.contrib.install("1.%d" % minor)
        for module, name, minors in read_names():
            if minor in minors and reason_of(module, name) is not None and find(module, name):
                present.append((minor, module, name))
    assert not present
