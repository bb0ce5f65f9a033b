"""The kernels of each instruction set, selected by CUDNN_RNN_CPU_INSTRUCTION_SET.

test_parity.py runs only the best instruction set of the machine; these tests cover the others.
"""

import platform
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
from helpers.cases import CASES
from helpers.networks import arrays_and_results, run_network
from helpers.op_harness import TOLERANCES, assert_close
from helpers.paths import ROOT
from helpers.processes import importable, output_of

pytestmark = pytest.mark.once

VARIABLE = "CUDNN_RNN_CPU_INSTRUCTION_SET"
# By machine; in the order in which C++ lists them.
ALL_INSTRUCTION_SETS = {
    "x86_64": ["portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"],
    "aarch64": ["portable", "neon", "neon_bf16"],
}
INSTRUCTION_SETS = ALL_INSTRUCTION_SETS[platform.machine()]
# Only with bfloat16 products.
BFLOAT16_SETS = [name for name in INSTRUCTION_SETS if name.endswith("_bf16")]
FLOAT_SETS = [name for name in INSTRUCTION_SETS if "bf16" not in name]

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor has no AMX")
# These cases include every mode, size and dtype of the table.
SOME_CASES = CASES[::2]


def can_run(instruction_set):
    """Returns whether the op accepts the instruction set on this processor."""
    case = CASES[0]
    try:
        run_network(case.configuration, case.dtype, arrays_and_results(case)[0])
    except tf.errors.InvalidArgumentError as error:
        assert VARIABLE in error.message and instruction_set in error.message
        assert "does not support" in error.message or "refuses AMX" in error.message
        return False
    return True


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
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
    listed = "%s or %s" % (", ".join(INSTRUCTION_SETS[:-1]), INSTRUCTION_SETS[-1])
    assert VARIABLE in caught.value.message
    assert "The instruction set must be %s, but is 'sse9'." % listed in caught.value.message


def test_the_page_on_the_engine_names_all_instruction_sets():
    text = Path(ROOT, "docs", "engine.md").read_text(encoding="utf-8")
    for name in sum(ALL_INSTRUCTION_SETS.values(), []):
        assert "`%s`" % name in text, name


def report():
    """Returns the op library's report on the CPU kernels of this process."""
    return doctor.cpu_report(library.library_path())


def parsed(text):
    """Returns {dtype: [instruction set, reason]} of a report; "precision" has its own."""
    lines = [line.split(": ", 1) for line in text.splitlines()]
    return {name: choice.split(", ", 1) for name, choice in lines}


def test_report(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    found = parsed(report())
    assert list(found) == ["float", "half", "bfloat16", "precision"]
    assert found["float"][0] in FLOAT_SETS
    assert found["half"][0] in (found["float"][0], "amx_bf16")
    assert found["bfloat16"][0] in [found["float"][0]] + BFLOAT16_SETS
    assert all(len(reason) > 10 for _, reason in found.values()), found
    monkeypatch.setenv(VARIABLE, "portable")
    assert list(parsed(report()).values())[:3] == [["portable", "requested by name"]] * 3
    monkeypatch.setenv(VARIABLE, "sse9")
    assert report().count("but is 'sse9'.\n") == 3


WITHOUT_AMX = """
import sys
import tensorflow.compat.v1 as tf
import cudnn_rnn
from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
from helpers import amx, sequence_cases

getattr(amx, sys.argv[1])()
if sequence_cases.HAS_BFLOAT16:
    with tf.Graph().as_default(), tf.Session() as session:
        one = tf.ones([1, 1, 1], tf.bfloat16)
        model = cudnn_rnn.CudnnRNNRelu(1, 1, 1, dtype=tf.bfloat16)
        outputs, _ = session.run(model(one, one, tf.ones([4], tf.bfloat16), is_training=False))
    assert float(outputs.ravel()[0]) == 4.0, outputs
sys.stdout.write(doctor.cpu_report(library.library_path()))
"""


def output_of_program(*arguments):
    """Returns what the program prints in a process that can import the tests' helpers."""
    return output_of("-W", "ignore", "-c", *arguments, PYTHONPATH=importable(), **{VARIABLE: None})


@pytest.mark.sampled(2)
@needs_x86
@pytest.mark.ci
@pytest.mark.parametrize(
    "refusal, cause",
    [("forbid", "Operation not permitted"), ("use_small_signal_stack", "signal stack")],
)
def test_where_the_system_refuses_amx(monkeypatch, refusal, cause):
    monkeypatch.delenv(VARIABLE, raising=False)
    permitted = parsed(report())
    refused = parsed(output_of_program(WITHOUT_AMX, refusal))
    for dtype in ("half", "bfloat16"):
        instruction_set, reason = refused.pop(dtype)
        assert instruction_set != "amx_bf16"
        if permitted.pop(dtype)[0] == "amx_bf16":
            assert "the system refuses AMX" in reason and cause in reason
    assert refused == permitted


PERMISSIONS = """
import tensorflow
from helpers import amx

permitted = [amx.is_permitted()]
import cudnn_rnn
permitted.append(amx.is_permitted())
from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
report = doctor.cpu_report(library.library_path())
permitted.append(amx.is_permitted() == (": amx_bf16, " in report))
print(permitted)
"""


@pytest.mark.sampled(4)
@needs_x86
@pytest.mark.ci
def test_the_import_does_not_request_amx():
    assert output_of_program(PERMISSIONS) == "[False, False, True]\n"
