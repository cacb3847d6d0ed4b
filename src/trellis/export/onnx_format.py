"""Writes a program as an ONNX graph with a batch of any size.

Every node of a program is one node of the graph, except `one_hot` and `argmax`, which are a few.
The graph uses opset 17, which runtimes support since 2022.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.export.check import Run
from trellis.export.program import Node, Program
from trellis.policies.convolutions import STRIDE

if TYPE_CHECKING:
    import onnx

OPSET, IR_VERSION = 17, 8
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
"""Operations that are a node with the constant, if there is one, as its last input."""


def serialize(program: Program, about: Mapping[str, str]) -> bytes:
    """Return the content of the file.

    Args:
        program: The program.
        about: Texts that describe the policy, stored as metadata.
    """
    import onnx
    from onnx import helper

    graph = _Graph([part.name for part in program.inputs])
    for node in program.nodes:
        graph.append(node)
    for part in program.outputs:
        graph.node("Identity", [graph.values[part.value]], output=part.name)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            [_tensor(p.name, p.dtype, p.shape) for p in program.inputs],
            [_tensor(p.name, p.dtype, p.shape) for p in program.outputs],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="trellis",
    )
    helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def open_policy(data: bytes, program: Program) -> Run:
    """Return the policy in the content of a file, as ONNX Runtime runs it."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    inputs, outputs = ([part.name for part in parts] for parts in (program.inputs, program.outputs))

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [*map(np.asarray, session.run(outputs, dict(zip(inputs, arrays, strict=True))))]

    return run


def _tensor(name: str, dtype: np.dtype, shape: Sequence[int]) -> "onnx.ValueInfoProto":
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, ["batch", *shape])


class _Graph:
    """Nodes and constants of a graph.

    Args:
        inputs: Names of the inputs.
    """

    def __init__(self, inputs: Sequence[str]):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values = [*inputs]
        """Names of the values of the program so far."""

    def append(self, node: Node) -> None:
        """Append a node of a program, whose result is the next value."""
        inputs = [self.values[number] for number in node.values]
        self.values.append(self._translate(node.name, inputs, node.constant))

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Append a node of the graph and return the name of its output."""
        from onnx import helper

        output = output or f"policy/{len(self.nodes)}/{kind}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def _translate(self, name: str, inputs: list[str], constant: np.ndarray | None) -> str:
        from onnx import helper

        if name == "concatenate":
            return self.node("Concat", inputs, axis=1)
        if constant is None:
            return self.node(NODES[name], inputs)
        if name == "cast":
            return self.node("Cast", inputs, to=helper.np_dtype_to_tensor_dtype(constant.dtype))
        if name == "argmax":
            return self._argmax(inputs[0], constant)
        if name == "one_hot":
            columns, values = constant
            picked = self.node("Gather", [*inputs, self._constant(columns)], axis=1)
            equal = self.node("Equal", [picked, self._constant(values)])
            return self.node("Cast", [equal], to=helper.np_dtype_to_tensor_dtype(np.dtype("f4")))
        if name == "columns":
            return self._columns(inputs[0], *constant)
        if name == "reshape":
            shape = np.concatenate([[0], constant])  # 0 keeps the batch axis.
            return self.node("Reshape", [*inputs, self._constant(shape)])
        if name == "transpose":
            return self.node("Transpose", inputs, perm=constant.tolist())
        if name == "mean_pool":
            side = [int(constant)] * 2
            return self.node("AveragePool", inputs, kernel_shape=side, strides=side)
        inputs = [*inputs, self._constant(constant)]
        if name == "convolve":
            return self.node("Conv", inputs, strides=[STRIDE, STRIDE])
        return self.node(NODES[name], inputs)

    def _columns(self, value: str, start: int, stop: int) -> str:
        edges = [self._constant(np.array([edge], np.int64)) for edge in (start, stop, 1)]
        return self.node("Slice", [value, *edges])

    def _argmax(self, value: str, sizes: np.ndarray) -> str:
        """Append the argmax of each group of columns, and return the choices side by side."""
        ends, choices = np.cumsum(sizes), []
        for start, end in zip(ends - sizes, ends, strict=True):
            part = self._columns(value, start, end)
            choices.append(self.node("ArgMax", [part], axis=1, keepdims=1))
        return choices[0] if len(choices) == 1 else self.node("Concat", choices, axis=1)

    def _constant(self, array: np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name
