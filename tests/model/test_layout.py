"""`cudnn_rnn.model.layout` against the layout in C++, which the parameter ops show."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from cudnn_rnn._compat import has_projection
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import DIRECTIONS, GATES, INPUT_MODES, RnnConfig

NUM_MODELS = 1000
assert cudnn_rnn  # registers the kernels


def random_config(random):
    """Returns a config of small sizes; every second that can has a projection."""
    rnn_mode = sorted(GATES)[random.randint(len(GATES))]
    input_mode = INPUT_MODES[random.randint(len(INPUT_MODES))]
    num_layers, num_units, input_size = (int(random.randint(1, most)) for most in (5, 8, 8))
    if input_mode == "skip_input" or random.randint(4) == 0:
        input_size = num_units
    can_project = rnn_mode == "lstm" and num_units > 1 and has_projection()
    num_proj = int(random.randint(1, num_units)) if can_project and random.randint(2) else 0
    return RnnConfig.checked(
        rnn_mode,
        num_layers,
        num_units,
        input_size,
        input_mode,
        DIRECTIONS[random.randint(2)],
        num_proj=num_proj,
    )


def canonical_tensors(config, values):
    """Returns the arrays that the op of this TensorFlow makes of a buffer."""
    weights, biases = layout.canonical_weights(config), layout.canonical_biases(config)
    arguments = dict(
        num_layers=config.num_layers,
        num_units=config.num_units,
        input_size=config.input_size,
        params=tf.constant(values),
        rnn_mode=config.rnn_mode,
        input_mode=config.input_mode,
        direction=config.direction,
    )
    if config.num_proj:
        found = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical_v2(
            num_params_weights=len(weights),
            num_params_biases=len(biases),
            num_proj=config.num_proj,
            **arguments,
        )
    else:
        found = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical(
            num_params=len(weights), **arguments
        )
    return [tensor.numpy() for tensor in tf.nest.flatten(found)]


def test_regions_are_those_of_the_kernels():
    random = np.random.RandomState(47)
    projections = 0
    with context.eager_mode():
        for _ in range(NUM_MODELS):
            config = random_config(random)
            projections += bool(config.num_proj)
            values = np.arange(layout.params_size(config), dtype=np.float64)
            regions = list(layout.regions(config))
            tensors = canonical_tensors(config, values)
            assert len(tensors) == len(regions), config
            for tensor, region in zip(tensors, regions):
                expected = np.arange(region.offset, region.offset + region.size)
                assert tensor.shape == region.shape, (config, region)
                np.testing.assert_array_equal(tensor.reshape(-1), expected, str((config, region)))
    assert projections > 50 or not has_projection()


def test_joined_regions_cover_the_buffer():
    random = np.random.RandomState(48)
    for _ in range(NUM_MODELS):
        config = random_config(random)
        end = 0
        for region in layout.joined_regions(config):
            assert region.offset == end and region.gate is None, (config, region)
            end += region.size
        assert end == layout.params_size(config) == sum(r.size for r in layout.regions(config))


def test_the_size_of_very_many_layers_needs_no_list_of_them():
    config = RnnConfig.checked("lstm", 2**31 - 1, 2, 3)
    assert layout.params_size(config) == 4 * 2 * (3 + 2 + 2) + (2**31 - 2) * 4 * 2 * (2 + 2 + 2)


def test_regions_of_a_model_by_hand():
    """Two layers of a bidirectional LSTM with a projection: every field of some regions."""
    config = RnnConfig.checked("lstm", 2, 3, 5, "linear_input", "bidirectional", num_proj=2)
    joined = list(layout.joined_regions(config))
    # 12 rows of W and R, 2 rows of the projection; the second layer's input has width 2 * 2.
    first, second = 12 * 5 + 12 * 2 + 2 * 3, 12 * 4 + 12 * 2 + 2 * 3
    matrices = 2 * first + 2 * second
    assert joined[:3] == [
        ("input_weights", 0, 0, None, (12, 5), 0),
        ("recurrent_weights", 0, 0, None, (12, 2), 60),
        ("projection", 0, 0, None, (2, 3), 84),
    ]
    assert joined[9] == ("input_weights", 1, 1, None, (12, 4), 2 * first + second)
    assert joined[12:14] == [
        ("input_bias", 0, 0, None, (12,), matrices),
        ("recurrent_bias", 0, 0, None, (12,), matrices + 12),
    ]
    assert joined[-1] == ("recurrent_bias", 1, 1, None, (12,), matrices + 7 * 12)
    gates = [region for region in layout.regions(config) if region.kind == "input_weights"]
    assert [region.gate for region in gates] == [0, 1, 2, 3] * 4
    assert gates[-1] == ("input_weights", 1, 1, 3, (3, 4), 2 * first + second + 36)
    assert all(type(number) is int for number in gates[-1][1:4] + gates[-1].shape)
    assert type(gates[-1].offset) is int
