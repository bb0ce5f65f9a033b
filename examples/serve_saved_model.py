"""Answers HTTP requests with a SavedModel that has CudnnRNN ops, on a CPU.

    python examples/serve_saved_model.py saved_model_folder --port 8501
    curl -d '{"inputs": [[[1.0, 2.0, 3.0]]]}' http://127.0.0.1:8501/

A request is a JSON object with an array for each input of the model's signature; the answer has an
array for each output. A GET request answers with the names and shapes. An answer to a wrong
request has the status 400, or 413 if the request is too large; it has the status 500 if JSON cannot
represent the outputs, such as NaN and infinity. examples/Dockerfile puts this program into a
container. It is for one trusted client: for others, put a proxy before it.
"""

import argparse
import json
import os
import re
import signal
from http.server import BaseHTTPRequestHandler, HTTPServer

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn  # noqa: F401  (registers the kernels)

MAXIMUM_BYTES = 16 << 20  # of a request


def to_array(name, value, dtype):
    """Returns an input's value as an array; raises ValueError if integers would change."""
    try:
        array = np.array(value, dtype)
        # Compares Python's numbers: an array of another type would round large integers.
        if array.dtype.kind not in "iu" or np.array_equal(array, np.array(value, object)):
            return array
    except OverflowError:
        pass
    raise ValueError("The input %r has a number that %s cannot represent." % (name, dtype.__name__))


class Model:
    """A signature of a SavedModel in a session."""

    def __init__(self, folder, name):
        self._session = tf.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            signatures = tf.saved_model.load(self._session, ["serve"], folder).signature_def
        self._signature = signatures[name]

    def describe(self):
        """Returns the names and shapes of the inputs and outputs; -1 is any size."""
        return {
            kind: {
                name: [dimension.size for dimension in tensor.tensor_shape.dim]
                for name, tensor in tensors.items()
            }
            for kind, tensors in (
                ("inputs", self._signature.inputs),
                ("outputs", self._signature.outputs),
            )
        }

    def run(self, request):
        """Returns a dict of the outputs for a dict of the inputs."""
        if not isinstance(request, dict) or set(request) != set(self._signature.inputs):
            raise ValueError(
                "The request must be an object with the keys %s, but is %.100r."
                % (sorted(self._signature.inputs), request)
            )
        feed = {
            tensor.name: to_array(name, request[name], tf.as_dtype(tensor.dtype).as_numpy_dtype)
            for name, tensor in self._signature.inputs.items()
        }
        names = {name: tensor.name for name, tensor in self._signature.outputs.items()}
        outputs = self._session.run(names, feed)
        return {name: value.tolist() for name, value in outputs.items()}


class Handler(BaseHTTPRequestHandler):
    """Answers requests to `model`."""

    model = None

    def do_GET(self):
        self._answer(200, self.model.describe())

    def do_POST(self):
        try:
            length = self.headers.get("Content-Length", "0")
            if not re.fullmatch("[0-9]{1,18}", length):
                text = "The header Content-Length must be a number of bytes, but is %.100r."
                raise ValueError(text % length)
            if int(length) > MAXIMUM_BYTES:
                text = "The request has %s bytes; at most %d are accepted."
                return self._answer(413, {"error": text % (length, MAXIMUM_BYTES)})
            outputs = self.model.run(json.loads(self.rfile.read(int(length)).decode()))
        except RecursionError:
            return self._answer(400, {"error": "The request has too many nested arrays."})
        except (ValueError, TypeError, tf.errors.OpError) as error:  # also of JSON and of NumPy
            return self._answer(400, {"error": str(error)})
        try:
            self._answer(200, outputs)
        except (ValueError, TypeError) as error:  # of JSON
            self._answer(500, {"error": "The outputs cannot be written as JSON: %s." % error})

    def _answer(self, status, content):
        body = json.dumps(content, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="of the SavedModel")
    parser.add_argument("--signature", default="serving_default", help="default: %(default)s")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument(
        "--port", type=int, default=8501, help="0: a free one; default: %(default)s"
    )
    return parser.parse_args(arguments)


def main():
    options = parse_arguments()
    Handler.model = Model(options.folder, options.signature)
    server = HTTPServer((options.host, options.port), Handler)
    # As the first process of a container, Python would ignore the signal of `docker stop`.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print("Serving on http://%s:%d/" % server.server_address[:2], flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("Stopped")


if __name__ == "__main__":
    main()
