"""The kernels of each instruction set, selected by CUDNN_RNN_CPU_INSTRUCTION_SET.

test_parity.py runs only the best instruction set of the machine; these tests cover the others.
"""

import pytest
import tensorflow.compat.v1 as tf

from helpers.cases import CASES
from helpers.networks import arrays_and_results, run_network
from helpers.op_harness import TOLERANCES, assert_close

pytestmark = pytest.mark.once

VARIABLE = "CUDNN_RNN_CPU_INSTRUCTION_SET"
# These cases include every mode, size and dtype of the table.
SOME_CASES = CASES[::2]


def can_run(instruction_set):
    """Returns whether the op accepts the instruction set on this processor."""
    case = CASES[0]
    try:
        run_network(case.configuration, case.dtype, arrays_and_results(case)[0])
    except tf.errors.InvalidArgumentError as error:
        assert VARIABLE in error.message and instruction_set in error.message
        assert "does not run" in error.message
        return False
    return True


@pytest.mark.parametrize(
    "instruction_set", ["portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"]
)
def test_instruction_set(instruction_set, monkeypatch):
    monkeypatch.setenv(VARIABLE, instruction_set)
    if not can_run(instruction_set):
        assert instruction_set != "portable"
        pytest.skip("this processor has no " + instruction_set)
    for case in SOME_CASES:
        arrays, expected = arrays_and_results(case)
        found = run_network(case.configuration, case.dtype, arrays)
        context = f"{VARIABLE}={instruction_set} {case}"
        assert_close(found, expected, TOLERANCES[case.dtype], context)


def test_some_cases_have_all_modes_sizes_and_dtypes():
    for column in ("rnn_mode", "num_units", "dtype", "direction", "num_layers", "batch", "steps"):
        values = {getattr(case, column) for case in CASES}
        assert {getattr(case, column) for case in SOME_CASES} == values, column


def test_unknown_instruction_set(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sse9")
    case = CASES[0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="sse9") as caught:
        run_network(case.configuration, case.dtype, arrays_and_results(case)[0])
    assert VARIABLE in caught.value.message and "portable" in caught.value.message
