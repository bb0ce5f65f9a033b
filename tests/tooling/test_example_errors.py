"""The programs in examples/ answer wrong arguments and files with a sentence, not a traceback."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from helpers.golden import GoldenCheckpoint
from helpers.paths import ROOT
from helpers.processes import importable, output_of
from helpers.scripts import load_program
from helpers.versions import needs_tensorflow_1, needs_tensorflow_2

pytestmark = pytest.mark.ci

EXAMPLES = os.path.join(ROOT, "examples")
# Runs commands in one process, because TensorFlow takes seconds to import. Prints a JSON array of
# the exit status (Python prints a text as the error, with the status 1) and stderr.
RUN_ALL = """
import contextlib, io, json, runpy, sys, traceback
for sys.argv in json.loads(sys.argv[1]):
    stderr, status = io.StringIO(), None
    with contextlib.redirect_stderr(stderr):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as exit:
            status = exit.code
        except Exception:
            status = traceback.format_exc()
    result = [1, status] if isinstance(status, str) else [status, stderr.getvalue()]
    print("RESULT " + json.dumps(result))
"""
WORKER = "multi_worker_training --workers localhost:1 --folder checkpoints --task 0"
TOO_OLD = "error: requires TensorFlow %s; this is TensorFlow " + tf.__version__
AT_LEAST_1 = "argument %s: must be a whole number, at least 1, but is 0"

# Each command, its exit status and what stderr contains. The first makes logical devices, which
# TensorFlow allows only before the first op.
IN_TENSORFLOW_2 = [
    (
        "mirrored_training --batch 3",
        2,
        "--batch is 3; --loop fit requires a multiple of 2, the number of devices",
    ),
]
IN_TENSORFLOW_1 = [
    ("mirrored_training", 2, TOO_OLD % "2.11 or newer"),
    (WORKER, 2, TOO_OLD % "2.11 or newer"),
    ("export_elsewhere --quick", 2, TOO_OLD % "2"),
]
IN_EVERY_VERSION = [
    ("mirrored_training --devices 0", 2, AT_LEAST_1 % "--devices"),
    ("mirrored_training --steps 0", 2, AT_LEAST_1 % "--steps"),
    ("mirrored_training --batch 0", 2, AT_LEAST_1 % "--batch"),
    (WORKER + " --batch 0", 2, AT_LEAST_1 % "--batch"),
    (
        "parameter_server_training --ps a:1 --workers b:1,c:1 --job worker --task 0 --batch 3",
        2,
        "--batch is 3; expected a multiple of 2, the number of workers",
    ),
    ("word_language_model --text missing.txt", 1, "error: cannot read missing.txt: No such file"),
    ("word_language_model --text latin.txt", 1, "error: latin.txt is not UTF-8 text (byte 3"),
    ("word_language_model --text empty.txt", 1, "error: the text has 0 words; at least 201 are"),
    ("word_language_model --quick --text 50.txt", 1, "error: the text has 50 words; at least 51"),
    (
        "word_language_model --quick --text 51.txt --learning-rate 1e9",
        1,
        "error: the training diverged: use a smaller --learning-rate",
    ),
    ("serve_on_cpu --expected short.npz", 2, "error: --expected requires --checkpoint"),
    ("serve_on_cpu --expected missing.npz --checkpoint CHECKPOINT", 1, "in missing.npz: [Errno 2]"),
    ("serve_on_cpu --expected 50.txt --checkpoint CHECKPOINT", 1, "in 50.txt: "),
    ("serve_on_cpu --expected inputs.npy --checkpoint CHECKPOINT", 1, ": it has one array"),
    ("serve_on_cpu --expected inputs.npz --checkpoint CHECKPOINT", 1, "outputs is not a file in"),
    (
        "serve_on_cpu --expected short.npz --checkpoint CHECKPOINT",
        1,
        "error: the recorded outputs have the shape (1, 3, 32), but the model's have the shape "
        "(6, 3, 32). ",
    ),
]


def marked(cases, *marks):
    return [pytest.param(*case, marks=marks, id=case[0]) for case in cases]


CASES = marked(IN_EVERY_VERSION)
CASES += marked(IN_TENSORFLOW_1, needs_tensorflow_1) + marked(IN_TENSORFLOW_2, needs_tensorflow_2)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Returns a dict from each command to the exit status and stderr."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (folder / "empty.txt").write_bytes(b"")
    for number in (50, 51):  # a line has a word and <eos>, or only <eos>
        words = ["word"] * (number // 2) + [""] * (number % 2)
        (folder / ("%d.txt" % number)).write_text("\n".join(words) + "\n")
    golden = GoldenCheckpoint(os.path.join("tf1.15.5", "lstm_L3_H16_I8_bi"))
    inputs, outputs = np.zeros([6, 3, 8], np.float32), np.zeros([1, 3, 32], np.float32)
    np.savez(str(folder / "short.npz"), inputs=inputs, outputs=outputs)
    np.savez(str(folder / "inputs.npz"), inputs=inputs)
    np.save(str(folder / "inputs.npy"), inputs)

    is_tensorflow_1 = tf.__version__.startswith("1.")
    cases = (IN_TENSORFLOW_1 if is_tensorflow_1 else IN_TENSORFLOW_2) + IN_EVERY_VERSION
    commands = [command for command, _, _ in cases]
    arguments = []
    for program, *rest in (command.split() for command in commands):
        rest = [golden.path if argument == "CHECKPOINT" else argument for argument in rest]
        arguments.append([os.path.join(EXAMPLES, program + ".py")] + rest)
    options = dict(folder=folder, PYTHONPATH=importable(EXAMPLES))
    lines = output_of("-W", "ignore", "-c", RUN_ALL, json.dumps(arguments), **options).splitlines()
    found = [json.loads(line[7:]) for line in lines if line.startswith("RESULT ")]
    return dict(zip(commands, found))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command, status, text", CASES)
def test_a_wrong_argument_or_file(results, command, status, text):
    found = results[command]
    assert (found[0], text in found[1]) == (status, True), found


@pytest.mark.parametrize("batch, workers", [(16, 1), (16, 2), (16, 3), (7, 4), (2, 3), (1, 2)])
def test_workers_share_every_row_of_a_batch(monkeypatch, batch, workers):
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.syspath_prepend(EXAMPLES)
    example = load_program(os.path.join(EXAMPLES, "multi_worker_training.py"))
    rows = np.arange(batch)
    shares = [example.own_rows(rows, Context(task, workers)) for task in range(workers)]
    np.testing.assert_array_equal(np.concatenate(shares), rows)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


class Context:
    """A stub of `tf.distribute.experimental.ValueContext`, which TensorFlow 1 lacks."""

    def __init__(self, replica, replicas):
        self.replica_id_in_sync_group, self.num_replicas_in_sync = replica, replicas
