"""One cell's tensors of an opaque buffer, read in eager execution without converting the rest."""

import numpy as np
import pytest

from cudnn_rnn.checkpoints import converters
from cudnn_rnn.graph import canonical
from helpers.layer_models import SAVEABLES
from helpers.rnn_models import CLASSES, DIRECTIONS, make_params

pytestmark = pytest.mark.usefixtures("eager")

LSTM = SAVEABLES["lstm"]


def make_saveable(cls=LSTM, rnn_mode="lstm", input_mode="linear_input", direction="bidirectional"):
    model = CLASSES[rnn_mode](2, 4, 4, input_mode, direction)
    params = make_params(model, use_resource=True)
    return cls(params, 2, 4, 4, input_mode, direction)


def assert_same_parts(saveable):
    expected = saveable.read_parts()
    assert len(expected) >= len(saveable.specs) > 1
    for index, spec in enumerate(saveable.specs):
        for found in saveable._read_part(index), spec.tensor:
            np.testing.assert_array_equal(found, expected[index])


@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(SAVEABLES))
def test_the_same_tensors_from_slices_of_the_buffer(monkeypatch, rnn_mode, direction, input_mode):
    saveable = make_saveable(SAVEABLES[rnn_mode], rnn_mode, input_mode, direction)
    assert_same_parts(saveable)
    monkeypatch.delattr(canonical, "params_to_canonical")
    for index in range(len(saveable.specs)):
        saveable._read_part(index)
    with pytest.raises(AttributeError, match="params_to_canonical"):
        saveable.read_parts()


class ForgetBiasOne(LSTM):
    def _cudnn_to_tf_biases(self, *biases):
        (bias,) = super()._cudnn_to_tf_biases(*biases)
        return (bias + 1,)


class TwoBiases(LSTM):
    """Saves each bias a second time."""

    def _cudnn_to_tf_biases(self, *biases):
        return super()._cudnn_to_tf_biases(*biases) * 2

    def _tf_canonical_names_single_layer(self, prefix, tf_weights_names, tf_biases_names):
        super()._tf_canonical_names_single_layer(prefix, tf_weights_names, tf_biases_names)
        tf_biases_names.append(prefix + "/same_bias")


class FewerNames(LSTM):
    """Saves no biases of the first cell; the names after them stand for the wrong cells."""

    def _tf_canonical_names(self):
        weights, biases = super()._tf_canonical_names()
        return weights, biases[1:]


class Doubled(converters.CudnnParamsFormatConverterLSTM):
    def _cu_canonical_to_tf_canonical(self, cu_weights, cu_biases):
        weights, biases = super()._cu_canonical_to_tf_canonical(cu_weights, cu_biases)
        return [2 * weight for weight in weights], biases


class DoubledConversion(LSTM):
    _format_converter_cls = Doubled


@pytest.mark.parametrize("cls", [ForgetBiasOne, DoubledConversion])
def test_programs_that_override_the_conversion(cls):
    saveable = make_saveable(cls)
    assert_same_parts(saveable)
    pairs = zip(saveable.read_parts(), make_saveable().read_parts())
    assert not all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.parametrize("cls", [TwoBiases, FewerNames])
def test_programs_that_override_the_names(cls):
    assert_same_parts(make_saveable(cls))
