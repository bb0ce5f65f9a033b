"""What the models of `tests/golden/keras` compute, in NumPy: recurrent layers, then one Dense."""

import json

import numpy as np

from helpers import reference
from helpers.exchange_models import configuration_of

# Float32; the originals ran on other processors and with other versions of TensorFlow.
TOLERANCE = 2e-6
# Those that `outputs_of` computes.
_MODELS = {
    "keras2.2.4": "bigru lstm s2s stackedlstm statefullstm",
    "tf1.15.5": "bigru lstm s2s stackedlstm statefullstm",
    "tf2.15.1": "bigru lstm plaingru s2s stackedlstm statefullstm",
    "keras_layers_tf2.15.1": "k_bi k_lstmin k_s2s o_bi o_lstmin",
}
NAMES = ["%s/%s" % (release, name) for release in _MODELS for name in _MODELS[release].split()]


def outputs_of(name, rnns, inputs, path):
    """Returns the output of a model.

    Args:
      name: "RELEASE/NAME".
      rnns: its RNNs, in the order of the layers.
      inputs: list of arrays.
      path: the model in HDF5, which has the Dense.
    """
    states, values = None, None
    for rnn, given in zip(rnns, inputs if "s2s" in name else [inputs[0]] + [None] * len(rnns)):
        values = values if given is None else given
        lengths = _lengths(values) if "_bi" in name and given is not None else None
        values, states = _run(rnn, values, states if "s2s" in name else None, lengths)
    kernel, bias = dense_of(path)
    if expected_is_last(name):
        values = np.concatenate(list(states[0][-rnns[-1].num_directions :]), axis=-1)
    return values @ kernel + bias


def outputs_of_chain(rnns, values, path):
    """Returns the last output of RNNs that follow each other, after the last layer, a Dense."""
    for rnn in rnns:
        values, _ = _run(rnn, values, None, None)
    kernel, bias = dense_of(path)
    return values[:, -1] @ kernel + bias


def expected_is_last(name):
    """Returns whether a model's output is that of the last step."""
    return not any(part in name for part in ("s2s", "stateful"))


def _lengths(values):
    """Returns the steps before the padding, which Masking leaves out."""
    return [int(np.flatnonzero(np.abs(one).max(axis=-1))[-1]) + 1 for one in values]


def _run(rnn, values, states, lengths):
    """Returns (output, states) of inputs [batch, steps, width]."""
    ways, batch = rnn.num_layers * rnn.num_directions, len(values)
    h, c = states or [np.zeros([ways, batch, rnn.num_units])] * 2
    arrays = dict(input=values.transpose(1, 0, 2), input_h=h, params=rnn.to_opaque())
    if rnn.rnn_mode == "lstm":
        arrays["input_c"] = c
    found = reference.run_reference(configuration_of(rnn), arrays, lengths=lengths)
    return found["output"].transpose(1, 0, 2), (found["output_h"], found.get("output_c"))


def dense_of(path):
    """Returns kernel and bias of a model's last layer."""
    import h5py

    with h5py.File(path, "r") as file:
        layers = json.loads(file.attrs["model_config"])["config"]["layers"]
        last = file["model_weights"][layers[-1]["config"]["name"]]
        return [last[name][()] for name in last.attrs["weight_names"]]
