"""OpenVINO on a CPU, inference only: the ONNX models that ONNX Runtime runs."""

import openvino
from onnx_graphs import INPUT, NetworkModel, product_model
from problem import Refused

# The hint is a permission: without the instructions, OpenVINO computes in float32.
_HINTS = {"float": openvino.Type.f32, "bfloat16": openvino.Type.bf16}
_PRECISION = "INFERENCE_PRECISION_HINT"


def start(options):
    """Returns the version; each compiled model sets its own number of threads."""
    return {"openvino": openvino.__version__}


def _compile(proto, options):
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": options["threads"],
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        _PRECISION: _HINTS[options["arithmetic"]],
    }
    return core.compile_model(core.read_model(proto.SerializeToString()), "CPU", settings)


def _run(request):
    """Runs a request, and leaves the outputs in its tensors."""
    request.infer(share_outputs=True)


def _shared(array):
    """Returns a tensor in the memory of an array."""
    return openvino.Tensor(array, shared_memory=True)


def matrix_product(size, options):
    """Returns a function that multiplies two matrices."""
    model, values = product_model(size)
    request = _compile(model, options).create_infer_request()
    for name, value in values.items():
        request.set_tensor(name, openvino.Tensor(value))
    return lambda: _run(request)


class Network:
    """Two requests in turn, each of which reads the states where the other writes them.

    So a decode loop copies no state but the first; a run of one call uses only the first request.
    """

    def __init__(self, configuration, problem, options):
        self._model = model = NetworkModel(configuration, problem)
        compiled = _compile(model.proto, options)
        if compiled.get_property(_PRECISION) != _HINTS[options["arithmetic"]]:
            raise Refused("it computes in float32 on this processor, whatever the hint")
        self._xs = [openvino.Tensor(x) for x in model.xs]
        # Two arrays of each state by the name of its input; the first run reads the first ones.
        self._arrays = [
            {name: model.values[name].copy() for name in model.states} for _ in range(2)
        ]
        self._requests = [
            self._make_request(compiled, *arrays) for arrays in (self._arrays, self._arrays[::-1])
        ]

    def _make_request(self, compiled, initial, final):
        """Returns a request that reads and writes these arrays of states."""
        request = compiled.create_infer_request()
        for name in self._model.values.keys() - self._model.states.keys():  # the lengths
            request.set_tensor(name, openvino.Tensor(self._model.values[name]))
        for name, final_name in self._model.states.items():
            request.set_tensor(name, _shared(initial[name]))
            request.set_tensor(final_name, _shared(final[name]))
        return request

    def step(self, keep=lambda request: None):
        """Runs once or, in a decode loop, for each step; returns the last request."""
        if len(self._xs) > 1:
            for name, array in self._arrays[0].items():
                array[:] = self._model.values[name]
        for number, x in enumerate(self._xs):
            request = self._requests[number % 2]
            request.set_tensor(INPUT, x)
            _run(request)
            keep(request)
        return request

    def results(self):
        """Returns the results."""
        outputs, name = [], self._model.output
        request = self.step(lambda one: outputs.append(one.get_tensor(name).data.copy()))
        states = [request.get_tensor(name).data for name in self._model.states.values()]
        return self._model.results(outputs, states)
