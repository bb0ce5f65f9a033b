"""Leaves out what branches return and nobody uses.

tf.cond of TensorFlow 1 with control flow v2 lets its branches return what gradients need, as
optionals, which ONNX cannot express; a `CudnnRNN*` node also returns its reserved space.
"""

from __future__ import annotations

import collections
from typing import Any, Counter, Dict, Iterable, List, Set, Tuple

from tensorflow.core.framework import types_pb2

from cudnn_rnn.onnx._screening import CALLED, node_of, number_of, tensors_of
from cudnn_rnn.plain._unused import functions_in, nodes_of

_CONDITIONALS = ("If", "StatelessIf")
_SHAPES = ("output_shapes", "_output_shapes")


def replace_unused_results(graph_def: Any, outputs: Iterable[str]) -> None:
    """Puts constants in the place of unused results, in place; other results keep their numbers.

    Branches that several nodes have stay as they are. `outputs` are the tensors that the graph
    returns.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    users: Counter[str] = collections.Counter(
        name for node in nodes_of(graph_def) for name in (node.op, *functions_in(node.attr))
    )
    seen: Set[str] = set()
    waiting: List[Tuple[Any, List[str]]] = [(graph_def.node, list(outputs))]
    while waiting:  # callers come before what they call
        nodes, results = waiting.pop()
        tensors = [name for node in nodes for name in tensors_of(node)]
        used = {(node_of(name), number_of(name)) for name in (*tensors, *results)}
        for node in nodes:
            called = {node.op, *functions_in(node.attr)} & functions.keys()
            if node.op in _CONDITIONALS and all(users[name] == 1 for name in called):
                _replace(node, functions, used)
            for name in called - seen:
                seen.add(name)
                waiting.append((functions[name].node_def, list(functions[name].ret.values())))


def _replace(conditional: Any, functions: Dict[str, Any], used: Any) -> None:
    """Puts a constant in the place of each unused result of the branches of a node."""
    names = [conditional.attr[name].func.name for name in CALLED[conditional.op]]
    branches = [functions[name] for name in names if name in functions]
    types = conditional.attr["Tout"].list.type
    counts = [len(branch.signature.output_arg) for branch in branches]
    if counts != [len(types)] * len(names):
        return
    unused = [index for index in range(len(types)) if (conditional.name, index) not in used]
    for index in unused:
        types[index] = types_pb2.DT_FLOAT
        for name in _SHAPES:
            if name in conditional.attr and index < len(conditional.attr[name].list.shape):
                conditional.attr[name].list.shape[index].Clear()
        for branch in branches:
            result = branch.signature.output_arg[index]
            constant = branch.node_def.add(name="cudnn_rnn_unused_%d" % index, op="Const")
            constant.attr["dtype"].type = types_pb2.DT_FLOAT
            constant.attr["value"].tensor.dtype = types_pb2.DT_FLOAT
            constant.attr["value"].tensor.tensor_shape.SetInParent()
            constant.attr["value"].tensor.float_val.append(0.0)
            branch.ret[result.name] = constant.name + ":output:0"
            name = result.name
            result.Clear()
            result.name, result.type = name, types_pb2.DT_FLOAT
    if unused:
        # The types of the former results, in TensorFlow 2.
        for message in (conditional, *branches):
            if hasattr(message, "experimental_type"):
                message.ClearField("experimental_type")
