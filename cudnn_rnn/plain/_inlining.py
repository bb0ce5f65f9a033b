"""Puts a computation into a graph or function in the place of a node.

The computation is traced as a function. Its nodes, renamed, become part of the graph, and a node
`IdentityN` with the name of the replaced node collects the outputs. So names of tensors, control
dependencies and colocations that refer to the node stay valid.

In a `GraphDef`, output 2 of a node is `name:2`; in a `FunctionDef` it is `name:argument:index`.
"""

import hashlib
import itertools

from cudnn_rnn._compat import op_definition, tf

# Ops of loops and conditionals of TensorFlow 1. In these, a constant without a control dependency
# runs outside of the loop or of the branch.
_CONTROL_FLOW_1 = ("Enter", "RefEnter", "Switch", "RefSwitch")

# Colocations refer to names before the renaming. The others are hints to matrix products that
# TensorFlow before 2.16 does not know.
_REMOVED_ATTRIBUTES = ("_class", "grad_a", "grad_b", "grad_x", "grad_y")


class Container:
    """The nodes of a graph, or of a function in its library."""

    def __init__(self, nodes, function=None):
        """`function` is the `FunctionDef`, or None for a graph."""
        self.nodes, self.function = nodes, function

    @property
    def name(self):
        return "function %r" % self.function.signature.name if self.function else "the graph"

    def replace(self, computations, library):
        """Replaces nodes, in place.

        Args:
          computations: dict from names of nodes to pairs of their operations and functions as
            `computation_of` returns.
          library: the `Library` of the graph.
        """
        binds_constants = any(node.op in _CONTROL_FLOW_1 for node in self.nodes)
        found = []
        for node in self.nodes:
            if node.name not in computations:
                found.append(node)
                continue
            op, compute = computations[node.name]
            inlined = _Inlined(node, op, compute, self.function is not None, library)
            if binds_constants:
                inlined.bind_constants(op.inputs[0].dtype.base_dtype)
            found += inlined.nodes
        found = [_copy(node) for node in found]
        del self.nodes[:]
        self.nodes.extend(found)
        if self.function is not None:
            self._use_outputs_of_identities({name: op for name, (op, _) in computations.items()})

    def _use_outputs_of_identities(self, operations):
        """Changes references to outputs: an IdentityN has a single argument, named `output`."""
        renamed = {}
        for name, op in operations.items():
            places = itertools.count()
            for argument in op.op_def.output_arg:
                length = op.get_attr(argument.number_attr) if argument.number_attr else 1
                for index in range(length):
                    old = "%s:%s:%d" % (name, argument.name, index)
                    renamed[old] = "%s:output:%d" % (name, next(places))
        for node in self.nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        for key, name in list(self.function.ret.items()):  # setting an entry moves it
            self.function.ret[key] = renamed.get(name, name)


class Library:
    """The function library of a `GraphDef`, to which inlined nodes add the bodies of loops."""

    def __init__(self, graph_def):
        self._functions = graph_def.library.function

    def add(self, functions):
        """Adds copies under new names; returns a dict from the old names to the new ones."""
        # The new names depend on the contents, so that a process can load several graphs.
        digest = hashlib.sha256()
        for function in sorted(functions, key=lambda function: function.signature.name):
            digest.update(function.SerializeToString(deterministic=True))
        names = {
            function.signature.name: "cudnn_rnn_plain_%s_%d" % (digest.hexdigest()[:16], place)
            for place, function in enumerate(functions)
        }
        for function in functions:
            added = self._functions.add()
            added.CopyFrom(function)
            added.signature.name = names[function.signature.name]
            for node in added.node_def:
                _clean(node, names)
            _rename_nodes(added, added.signature.name + "/")
        return names


class _Inlined:
    """The nodes that replace one node."""

    def __init__(self, node, op, compute, in_function, library):
        specs = [
            tf.TensorSpec(tensor.shape, tensor.dtype.base_dtype, "input_%d" % index)
            for index, tensor in enumerate(op.inputs)
        ]
        with tf.Graph().as_default():
            traced = tf.function(lambda *inputs: compute(list(inputs)), autograph=False)
            traced = traced.get_concrete_function(*specs)
        self._prefix = node.name + "/plain/"
        self._control_inputs = [name for name in node.input if name.startswith("^")]
        inputs = [name for name in node.input if not name.startswith("^")]
        graph_def = traced.graph.as_graph_def()
        names = library.add(graph_def.library.function)
        if in_function:
            function = traced.function_def
            arguments = [argument.name for argument in function.signature.input_arg]
            outputs = [function.ret[output.name] for output in function.signature.output_arg]
            inner = function.node_def
        else:
            arguments = [tensor.op.name for tensor in traced.graph.inputs]
            outputs = [tensor.name for tensor in traced.graph.outputs]
            inner = [other for other in graph_def.node if other.name not in arguments]
        self._sources = dict(zip(arguments, inputs))
        self.nodes = []
        for inner_node in inner:
            copied = _copy(inner_node)
            copied.name = self._prefix + inner_node.name
            copied.input[:] = map(self._renamed, inner_node.input)
            _clean(copied, names)
            self.nodes.append(copied)
        identity = tf.NodeDef(name=node.name, op="IdentityN")
        identity.input.extend([self._renamed(output) for output in outputs] + self._control_inputs)
        types = [tensor.dtype.base_dtype.as_datatype_enum for tensor in op.outputs]
        identity.attr["T"].list.type.extend(types)
        self.nodes.append(identity)

    def _renamed(self, reference):
        """Returns the reference to an inner node or an argument as one in the outer graph."""
        mark = "^" if reference.startswith("^") else ""
        name, colon, place = reference[len(mark) :].partition(":")
        if name not in self._sources:
            return mark + self._prefix + name + colon + place
        source = self._sources[name]
        return mark + source.split(":")[0] if mark else source

    def bind_constants(self, dtype):
        """Makes nodes without inputs run where the replaced node runs.

        These nodes depend on the first input, which has this dtype. They do not depend on the op
        that computes it: a Switch belongs to no branch.
        """
        pivot = tf.NodeDef(name=self._prefix + "pivot", op="Identity")
        pivot.input.append(next(iter(self._sources.values())))
        pivot.attr["T"].type = dtype.as_datatype_enum
        for node in self.nodes:
            if not node.input:
                node.input.append("^" + pivot.name)
        self.nodes.insert(0, pivot)


def _rename_nodes(function, prefix):
    """Prefixes the names of a function's nodes.

    tf2onnx takes nodes of a loop's body for those of the graph that have the same names.
    """
    nodes = {node.name for node in function.node_def}

    def renamed(reference):
        """`reference` is "node", "^node", "node:output:0", or the name of an argument."""
        mark = "^" if reference.startswith("^") else ""
        name = reference[len(mark) :]
        return mark + prefix + name if name.partition(":")[0] in nodes else reference

    for node in function.node_def:
        node.name = prefix + node.name
        node.input[:] = map(renamed, node.input)
    for results in (function.ret, function.control_ret):
        for key, reference in list(results.items()):  # setting an entry moves it
            results[key] = renamed(reference)


def _clean(node, names):
    """Gives a new node the new names of functions, and the form that older versions can read."""
    definition = op_definition(node.op) if node.op not in names else None
    if definition is not None:
        for attribute in definition.attr:
            is_default = (
                attribute.HasField("default_value")
                and attribute.name in node.attr
                and node.attr[attribute.name] == attribute.default_value
            )
            if is_default:  # may be unknown to older versions
                del node.attr[attribute.name]
    for name in _REMOVED_ATTRIBUTES:
        node.attr.pop(name, None)
    node.op = names.get(node.op, node.op)
    for value in node.attr.values():
        for function in [value.func] if value.HasField("func") else value.list.func:
            function.name = names.get(function.name, function.name)


def _copy(node):
    copy = tf.NodeDef()
    copy.CopyFrom(node)
    return copy
