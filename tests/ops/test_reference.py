"""The reference compared with numeric gradients, the specification's sizes, and itself."""

import itertools

import numpy as np
import pytest

from helpers import cases, reference

MODES = cases.COLUMNS["rnn_mode"]
DIRECTIONS = cases.COLUMNS["direction"]


@pytest.mark.parametrize("configuration, expected", cases.PUBLISHED_SIZES)
def test_sizes_known_from_cudnn(configuration, expected):
    assert reference.params_size(reference.Configuration(*configuration)) == expected


def test_regions_lie_side_by_side_and_fill_the_buffer():
    for case in cases.CASES:
        end = 0
        for region in reference.regions(case.configuration):
            assert region.offset == end, (case, region)
            end += int(np.prod(region.shape))
        assert end == reference.params_size(case.configuration), case


def test_a_hand_written_layout():
    """The offsets of two bidirectional GRU layers equal those computed by hand."""
    configuration = reference.Configuration("gru", "linear_input", "bidirectional", 2, 2, 3)
    found = {region[:4]: region for region in reference.regions(configuration)}
    assert found["W", 0, 0, 0].offset == 0 and found["W", 0, 0, 0].shape == (2, 3)
    assert found["W", 0, 0, 1].offset == 6
    assert found["R", 0, 0, 0].offset == 18 and found["R", 0, 0, 0].shape == (2, 2)
    assert found["W", 0, 1, 0].offset == 30
    assert found["W", 1, 0, 0].offset == 60 and found["W", 1, 0, 0].shape == (2, 4)
    assert found["W", 1, 1, 2].offset == 96 + 16
    assert found["bW", 0, 0, 0].offset == 132
    assert found["bR", 0, 0, 0].offset == 138
    assert found["bW", 1, 0, 0].offset == 156
    assert found["bR", 1, 1, 2].offset == 178 and reference.params_size(configuration) == 180


def test_canonical_form_round_trips():
    for case in cases.CASES:
        params = np.arange(reference.params_size(case.configuration))
        weights, biases = reference.params_to_canonical(case.configuration, params)
        cells = case.configuration.num_layers * case.configuration.directions
        assert len(weights) == len(biases) == 2 * case.configuration.gates * cells
        again = reference.canonical_to_params(case.configuration, weights, biases)
        np.testing.assert_array_equal(again, params)


def numeric_gradients(loss, arrays, delta=1e-5):
    """Returns central differences of loss(arrays) for every element of the arrays, a dict."""
    gradients = {}
    for name, array in arrays.items():
        gradients[name] = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            kept, ends = array[index], []
            for sign in (1.0, -1.0):
                array[index] = kept + sign * delta
                ends.append(loss(arrays))
            array[index] = kept
            gradients[name][index] = (ends[0] - ends[1]) / (2.0 * delta)
    return gradients


@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_backward_agrees_with_numeric_gradients(rnn_mode, direction, input_mode):
    units, batch, steps = 2, 2, 3
    input_size = units if input_mode == "skip_input" else 3
    configuration = reference.Configuration(rnn_mode, input_mode, direction, 2, units, input_size)
    for seed in itertools.count():
        random = np.random.RandomState(seed)
        arrays = cases.random_arrays(configuration, batch, steps, "float64", random)
        if cases.relu_distance(configuration, arrays) > 1e-3:
            break
    mask = (random.uniform(size=(steps, batch, configuration.width(1))) < 0.5) * 2.0
    assert 0.0 < mask.mean() < 2.0

    def run(arrays):
        values = [arrays.get(name) for name in ("input", "input_h", "input_c", "params")]
        return reference.forward(configuration, *values, masks=[None, mask])

    backprops = [
        arrays.pop(name + "_backprop", None) for name in ("output", "output_h", "output_c")
    ]

    def loss(arrays):
        outputs = run(arrays)[:3]
        return sum((y * dy).sum() for y, dy in zip(outputs, backprops) if y is not None)

    expected = numeric_gradients(loss, arrays)
    found = reference.backward(run(arrays)[3], *backprops)._asdict()
    for name, gradient in expected.items():
        assert np.abs(gradient).max() > 1e-3
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode, num_proj", [(mode, 0) for mode in MODES] + [("lstm", 2)])
def test_sequences_of_a_batch_are_independent(rnn_mode, num_proj, direction):
    configuration = reference.Configuration(rnn_mode, "linear_input", direction, 2, 3, 4, num_proj)
    steps, lengths = 5, [2, 0, 5, 4]
    random = np.random.RandomState(3)
    stacks, batch = 2 * configuration.directions, len(lengths)
    output_width = configuration.directions * configuration.output_size
    padded = {
        "input": random.standard_normal((steps, batch, configuration.input_size)),
        "output_backprop": random.standard_normal((steps, batch, output_width)),
    }
    for array in padded.values():
        for sequence, length in enumerate(lengths):
            array[length:, sequence] = np.nan
    hidden, cells = (stacks, batch, configuration.output_size), (stacks, batch, 3)
    states = {"h": random.standard_normal(hidden), "c": random.standard_normal(cells)}
    backprops = {"h": random.standard_normal(hidden), "c": random.standard_normal(cells)}
    params = random.uniform(-0.7, 0.7, reference.params_size(configuration))
    mask = 2.0 * (random.uniform(size=(steps, batch, output_width)) < 0.5)

    def run(sequences, length, lengths):
        """Returns all results for the given sequences, cut to `length` steps."""
        tape = reference.forward(
            configuration,
            padded["input"][:length, sequences],
            states["h"][:, sequences],
            states["c"][:, sequences],
            params,
            masks=[None, mask[:length, sequences]],
            lengths=lengths,
        )
        gradients = reference.backward(
            tape[3],
            padded["output_backprop"][:length, sequences],
            backprops["h"][:, sequences],
            backprops["c"][:, sequences],
        )
        found = dict(zip(("output", "output_h", "output_c"), tape), **gradients._asdict())
        return {name: array for name, array in found.items() if array is not None}

    together = run(slice(None), steps, lengths)
    d_params = np.zeros_like(params)
    for sequence, length in enumerate(lengths):
        alone = run(slice(sequence, sequence + 1), length, None)
        d_params += alone.pop("params")
        for name, expected in alone.items():
            found = together[name][:, sequence : sequence + 1]
            if name in ("output", "input"):
                assert not found[length:].any(), name
                found = found[:length]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(together["params"], d_params, rtol=0, atol=1e-12)


def test_skipped_input_is_the_identity_matrix():
    for rnn_mode, direction in itertools.product(MODES, DIRECTIONS):
        skip = reference.Configuration(rnn_mode, "skip_input", direction, 2, 3, 3)
        linear = skip._replace(input_mode="linear_input")
        arrays = cases.random_arrays(skip, 2, 4, "float64", np.random.RandomState(0))
        weights, biases = reference.params_to_canonical(skip, arrays["params"])
        weights = [np.eye(3) if matrix.size == 0 else matrix for matrix in weights]
        params = reference.canonical_to_params(linear, weights, biases)
        inputs = [arrays.get(name) for name in ("input", "input_h", "input_c")]
        skipped = reference.forward(skip, *inputs, params=arrays["params"])
        multiplied = reference.forward(linear, *inputs, params=params)
        np.testing.assert_allclose(skipped[0], multiplied[0], rtol=1e-12)


def test_auto_select_follows_the_sizes():
    equal = reference.Configuration("gru", "auto_select", "unidirectional", 1, 4, 4)
    assert equal.skips_input
    assert not equal._replace(input_size=5).skips_input


@pytest.mark.parametrize(
    "columns",
    list(itertools.combinations(cases.COLUMNS, 2))
    + [
        ("rnn_mode", "input_mode", "direction", "num_layers"),
        ("rnn_mode", "num_units", "dtype"),
    ],
    ids="-".join,
)
def test_the_table_of_cases_is_complete(columns):
    assert cases.missing_combinations(cases.CASES, columns) == []


def test_data_of_half_precision_relu_keep_units_on_and_off():
    """float16 data for relu must switch some units on and some off."""
    for case in cases.CASES:
        if case.rnn_mode == "rnn_relu" and case.dtype == "float16":
            arrays = cases.make_arrays(case)
            values = [arrays.get(name) for name in ("input", "input_h", "input_c", "params")]
            output = reference.forward(case.configuration, *values)[0]
            on = (output > 0.0).mean()
            assert on > 0.0 and (case.num_units == 1 or on < 1.0), case
