"""The reference's layout, and its table of cases; torch_parity.py checks what it computes."""

import itertools

import pytest

from helpers import cases, reference
from helpers.networks import model

pytestmark = pytest.mark.once


def test_a_hand_written_layout():
    """The offsets of two bidirectional GRU layers equal those computed by hand."""
    configuration = model("gru", "bidirectional", num_units=2, input_size=3)
    places = {region[:4]: region[4:] for region in reference.regions(configuration)}
    assert reference.params_size(configuration) == 180
    expected = {
        ("W", 0, 0, 0): ((2, 3), 0),
        ("W", 0, 0, 1): ((2, 3), 6),
        ("R", 0, 0, 0): ((2, 2), 18),
        ("W", 0, 1, 0): ((2, 3), 30),
        ("W", 1, 0, 0): ((2, 4), 60),
        ("W", 1, 1, 2): ((2, 4), 96 + 16),
        ("bW", 0, 0, 0): ((2,), 132),
        ("bR", 0, 0, 0): ((2,), 138),
        ("bW", 1, 0, 0): ((2,), 156),
        ("bR", 1, 1, 2): ((2,), 178),
    }
    assert {key: places[key] for key in expected} == expected


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
            found = reference.run_reference(case.configuration, cases.make_arrays(case))
            on = (found["output"] > 0.0).mean()
            assert on > 0.0 and (case.num_units == 1 or on < 1.0), case
