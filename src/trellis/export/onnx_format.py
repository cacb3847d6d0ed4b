"""Writes a program as an ONNX graph with a batch of any size.

Every operation of a program is one node, except `one_hot` and `argmax`, which are a few. The graph
uses opset 17, which runtimes support since 2022.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.export.check import Run
from trellis.export.program import Operation, Program, has_mask
from trellis.policies.convolutions import STRIDE

if TYPE_CHECKING:
    import onnx

OPSET, IR_VERSION = 17, 8
ACTION = "action"
"""Name of the output."""
NODES = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "minimum": "Min",
    "maximum": "Max",
    "matmul": "MatMul",
    "round": "Round",
    "tanh": "Tanh",
}
"""Operations that are a node with the constant, if there is one, as its second input."""


def serialize(program: Program, about: Mapping[str, str]) -> bytes:
    """Return the content of the file.

    Args:
        program: The program.
        about: Texts that describe the policy, stored as metadata.
    """
    import onnx
    from onnx import helper

    graph, features = _Graph(), []
    for index, part in enumerate(program.inputs):
        graph.start(part.name, f"input{index}")
        features.append(graph.run(part.operations))
    graph.mask = features.pop() if has_mask(program) else ""
    graph.start(features[0], "policy")
    if len(features) > 1:
        graph.value = graph.node("Concat", features, axis=1)
    graph.node("Identity", [graph.run(program.operations)], output=ACTION)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            [_tensor(p.name, p.dtype, p.space.shape or ()) for p in program.inputs],
            [_tensor(ACTION, program.dtype, program.shape)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="trellis",
    )
    helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def open_policy(data: bytes) -> Run:
    """Return the policy in the content of a file, as ONNX Runtime runs it."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(arrays: Sequence[np.ndarray]) -> np.ndarray:
        (actions,) = session.run([ACTION], dict(zip(names, arrays, strict=True)))
        return np.asarray(actions)

    return run


def _tensor(name: str, dtype: np.dtype, shape: Sequence[int]) -> "onnx.ValueInfoProto":
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, ["batch", *shape])


class _Graph:
    """Nodes and constants of a graph, and the name of the value that the next node takes."""

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.value, self._prefix = "", ""
        self.mask = ""
        """Name of the encoded action mask, if there is one."""

    def start(self, value: str, prefix: str) -> None:
        """Continue from a value; new names begin with `prefix`."""
        self.value, self._prefix = value, prefix

    def run(self, operations: Sequence[Operation]) -> str:
        """Append operations and return the name of the result."""
        for name, constant in operations:
            self.value = self._append(name, constant)
        return self.value

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        from onnx import helper

        output = output or f"{self._prefix}/{len(self.nodes)}/{kind}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def _append(self, name: str, constant: np.ndarray | None) -> str:
        from onnx import helper

        value = self.value
        if name == "cast":
            assert constant is not None
            return self.node("Cast", [value], to=helper.np_dtype_to_tensor_dtype(constant.dtype))
        if name == "add_mask":
            return self.node("Add", [value, self.mask])
        if name == "argmax":
            return self._argmax(np.asarray(constant))
        if name == "one_hot":
            columns, values = np.asarray(constant)
            picked = self.node("Gather", [value, self._constant(columns)], axis=1)
            equal = self.node("Equal", [picked, self._constant(values)])
            return self.node("Cast", [equal], to=helper.np_dtype_to_tensor_dtype(np.dtype("f4")))
        if constant is None:
            return self.node(NODES[name], [value])
        if name == "reshape":
            shape = np.concatenate([[0], constant])  # 0 keeps the batch axis.
            return self.node("Reshape", [value, self._constant(shape)])
        if name == "transpose":
            return self.node("Transpose", [value], perm=constant.tolist())
        if name == "mean_pool":
            side = [int(constant)] * 2
            return self.node("AveragePool", [value], kernel_shape=side, strides=side)
        second = self._constant(constant)
        if name == "convolve":
            return self.node("Conv", [value, second], strides=[STRIDE, STRIDE])
        return self.node(NODES[name], [value, second])

    def _argmax(self, sizes: np.ndarray) -> str:
        """Append the argmax of each group of columns, and return the choices side by side."""
        ends = np.cumsum(sizes)
        axis, choices = self._constant(np.array([1])), []
        for start, end in zip(ends - sizes, ends, strict=True):
            bounds = [self._constant(np.array([edge])) for edge in (start, end)]
            part = self.node("Slice", [self.value, *bounds, axis])
            choices.append(self.node("ArgMax", [part], axis=1, keepdims=1))
        return choices[0] if len(choices) == 1 else self.node("Concat", choices, axis=1)

    def _constant(self, array: np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"{self._prefix}/constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name
