"""Runs of benchmarks/cpu: its TensorFlow peers against the reference, and fake peers."""

import importlib
import json
import math
import os
import sys
import textwrap

import numpy as np
import pytest

from helpers.benchmark_modules import forget_modules, import_from
from helpers.versions import IS_TENSORFLOW_1


@pytest.fixture(autouse=True)
def import_from_the_benchmark():
    with import_from("cpu", "cpu/workers", "common"):
        yield


def reference_results(configuration, arrays):
    """Returns the results of the tests' NumPy reference under the names that peers use."""
    from ours import regions

    from helpers import reference

    described = reference.Configuration(
        configuration.rnn_mode,
        "linear_input",
        configuration.direction,
        configuration.num_layers,
        configuration.num_units,
        configuration.input_size,
    )
    params = np.concatenate([arrays[name].ravel() for name, _ in regions(configuration)])
    lengths = configuration.lengths
    names = ["h", "c"] if configuration.has_cell_state else ["h"]
    states = [arrays.get("input_" + name) for name in ("h", "c")]
    output, h, c, tape = reference.forward(
        described,
        arrays["input"],
        *states,
        params=params,
        lengths=None if lengths is None else np.array(lengths),
    )
    found = dict(zip(["output"] + ["output_" + name for name in names], [output, h, c]))
    if configuration.is_training:
        backprops = [arrays.get(name + "_backprop") for name in ("output", "output_h", "output_c")]
        d_input, d_h, d_c, d_params = reference.backward(tape, *backprops)
        found.update(zip(["d_input"] + ["d_input_" + name for name in names], [d_input, d_h, d_c]))
        for name, shape in regions(configuration):
            size = int(np.prod(shape))
            found["d_" + name], d_params = d_params[:size].reshape(shape), d_params[size:]
    return found


def workers_in_this_tensorflow():
    """Returns the modules of the peers that run in the installed TensorFlow."""

    is_1 = IS_TENSORFLOW_1
    return ["ours"] + (["tf1_cells", "tf1_fused"] if is_1 else [])


def test_peers_in_tensorflow_match_the_reference():
    from configurations import configurations
    from problem import compare, make_arrays
    from refusal import Refused

    refused = set()
    for module in workers_in_this_tensorflow():
        peer = importlib.import_module(module)
        for configuration in configurations(quick=True):
            arrays = make_arrays(configuration)
            try:
                found = peer.Network(configuration, arrays, 1).results()
            except Refused:
                refused.add((module, configuration.rnn_mode))
                continue
            expected = reference_results(configuration, arrays)
            assert compare(configuration, found, expected) < 1e-5, (module, configuration.key)
    assert refused <= {("tf1_fused", "gru"), ("tf1_fused", "rnn_tanh")}


def write_pretended_peers(folder):
    """Writes peer modules for worker.py: honest, wrong (results) and mortal (exits in a step)."""
    (folder / "honest.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            from problem import expected_results
            from refusal import Refused

            def start(threads):
                print("this is not an answer")
                return {"pretended": str(threads)}

            def matrix_product(size):
                return lambda: None

            class Network:
                def __init__(self, configuration, arrays, threads):
                    if configuration.rnn_mode == "gru":
                        raise Refused("no gates")
                    self.names = expected_results(configuration)
                    self.total = sum(value.sum() for value in arrays.values())

                def step(self):
                    pass

                def results(self):
                    return {name: np.full(3, self.total) for name in self.names}
            """
        )
    )
    (folder / "wrong.py").write_text(
        "from honest import Network as Honest, start\n"
        "class Network(Honest):\n"
        "    def results(self):\n"
        "        return {name: value * 1.01 for name, value in super().results().items()}\n"
    )
    (folder / "mortal.py").write_text(
        "import os\n"
        "from honest import Network as Honest, start\n"
        "class Network(Honest):\n"
        "    def step(self):\n"
        "        os._exit(3)\n"
    )


@pytest.fixture
def pretended_peers(tmp_path, monkeypatch):
    """Replaces the benchmark's peers by processes of this Python that compute nothing."""
    import peers

    write_pretended_peers(tmp_path)
    both = ("inference", "training")
    pretended = {
        "ours": peers.Peer("ours", "torch", "honest", both),
        "torch": peers.Peer("torch", "torch", "honest", both),
        "keras": peers.Peer("Keras", "torch", "wrong", both),
        "tf1-cell": peers.Peer("TF 1.15", "torch", "mortal", both),
    }
    monkeypatch.setattr(peers, "PEERS", pretended)
    forget_modules(keep=["peers", "measuring", "worker_process"])
    monkeypatch.setenv("TORCH_PYTHON", sys.executable)
    monkeypatch.delenv("CUDNN_RNN_READ_BANDWIDTH", raising=False)
    make_environment = peers._worker_environment
    monkeypatch.setattr(
        peers,
        "_worker_environment",
        lambda threads: dict(make_environment(threads), PYTHONPATH=str(tmp_path)),
    )
    return tmp_path


def run_benchmark(folder, *arguments):
    import run

    output = folder / "output"
    status = run.main(["--quick", "--threads", "1", "--output", str(output)] + list(arguments))
    with open(str(output / "results.json")) as file:
        return status, json.load(file), output


def test_a_run_writes_results_and_tables(pretended_peers, capfd):
    status, everything, output = run_benchmark(
        pretended_peers,
        "--peers",
        "ours",
        "torch",
        "--configurations",
        "lstm-*",
        "gru-2x16-*",
        "rnn_tanh-1x16-*",
    )
    assert status == 0
    assert everything["threads"] == 1 and everything["versions"]["torch"] == {"pretended": "1"}
    assert everything["machine"]["logical_cpus"] >= 1
    by_mode = {}
    for result in everything["results"]:
        assert len(result["peak_seconds"]) == 3
        by_mode.setdefault(result["configuration"]["rnn_mode"], []).append(result["peers"])
    for peers in by_mode["lstm"] + by_mode["rnn_tanh"]:
        assert all(len(peers[name]["seconds"]) == 3 for name in ("ours", "torch"))
        assert peers["torch"]["difference"] == 0
    for peers in by_mode["gru"]:
        assert peers["torch"] == {"reason": "no gates", "is_error": False}
    assert (output / "ratios.png").exists()
    assert "torch: no gates" in (output / "table.md").read_text()
    assert "this is not an answer" in (output / "worker-torch.log").read_text()
    assert "Goals met" not in capfd.readouterr().out


def test_peers_with_wrong_results_have_no_time(pretended_peers):
    status, everything, _ = run_benchmark(
        pretended_peers, "--peers", "ours", "keras", "--configurations", "lstm-*"
    )
    assert status == 1
    for result in everything["results"]:
        assert "seconds" in result["peers"]["ours"]
        found = result["peers"]["keras"]
        assert found["is_error"] and "seconds" not in found
        assert "wrong results" in found["reason"]


def test_check_option_measures_no_time(pretended_peers):
    status, everything, output = run_benchmark(
        pretended_peers,
        "--check",
        "--peers",
        "ours",
        "torch",
        "tf1-cell",
        "--configurations",
        "rnn_tanh-*",
    )
    assert status == 0  # the peer that dies in a step has the same results
    for result in everything["results"]:
        assert result["peers"]["torch"] == {"difference": 0}
        assert not result["peers"]["tf1-cell"].get("seconds")
    lines = (output / "table.md").read_text().splitlines()
    assert lines[0] == "Nothing was measured." and not (output / "ratios.png").exists()
    (line,) = [line for line in lines if line.startswith("- torch: 0.0e+00 (rnn_tanh-2x16")]
    assert line.endswith("; of 4 configurations)")


def test_a_crashed_peer_is_reported_and_the_others_are_measured(pretended_peers):
    status, everything, _ = run_benchmark(
        pretended_peers, "--peers", "ours", "tf1-cell", "--configurations", "rnn_tanh-*"
    )
    assert status == 1
    for result in everything["results"]:
        assert len(result["peers"]["ours"]["seconds"]) == 3
        assert "ended with status 3" in result["peers"]["tf1-cell"]["reason"]


def test_a_peer_without_a_python_is_reported(pretended_peers, monkeypatch):
    import peers

    monkeypatch.setitem(peers.PEERS, "torch", peers.PEERS["torch"]._replace(environment="keras"))
    monkeypatch.setitem(peers.ENVIRONMENT_VARIABLES, "keras", "NO_SUCH_PYTHON")
    status, everything, _ = run_benchmark(
        pretended_peers, "--peers", "ours", "torch", "--configurations", "rnn_tanh-1x16-*"
    )
    assert status == 0
    for result in everything["results"]:
        assert "seconds" in result["peers"]["ours"]
        found = result["peers"]["torch"]
        assert "$NO_SUCH_PYTHON is not set" in found["reason"] and not found["is_error"]


def test_memory(pretended_peers, monkeypatch, capfd):
    import peers

    pretended = {
        name: peers.Peer(name, "torch", module, ("training",))
        for name, module in [("ours", "small"), ("torch", "large")]
    }
    for name, megabytes in [("small", 20), ("large", 60)]:
        (pretended_peers / (name + ".py")).write_text(
            "import numpy as np\n"
            "from honest import Network as Honest, start\n"
            "class Network(Honest):\n"
            "    def step(self):\n"
            "        np.ones(%d * 2**20, np.uint8)\n" % megabytes
        )
    monkeypatch.setattr(peers, "PEERS", pretended)
    import run

    output = pretended_peers / "memory"
    arguments = ["--quick", "--memory", "--threads", "1", "--configurations", "rnn_tanh-*"]
    assert run.main(arguments + ["--output", str(output)]) == 0
    with open(str(output / "memory.json")) as file:
        results = json.load(file)["results"]
    assert len(results) == 2
    for result in results:
        for name, megabytes in [("ours", 20), ("torch", 60)]:
            found = result["peers"][name]["bytes"] / 2**20
            assert math.isclose(found, megabytes, abs_tol=3), (name, found)
    assert "at most as much as PyTorch in 2 of 2." in capfd.readouterr().out


def test_page_of_a_run(pretended_peers):
    _, _, output = run_benchmark(
        pretended_peers, "--peers", "ours", "torch", "--configurations", "rnn_tanh-*"
    )
    from record import keep

    (output / "memory.md").write_text("| memory |\n")
    path = keep(str(output), str(pretended_peers / "docs"))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for part in ["# ", "| logical cpus |", "| command |", "## Times", "| memory |", "pretended 1"]:
        assert part in text, (part, text)
    name = os.path.splitext(path)[0]
    assert os.path.basename(name) + ".png" in text
    assert os.path.exists(name + ".png") and os.path.exists(name + ".json")
