"""Multiplies gathered values with the rows of a matrix in vector registers, compiled by numba.

A convolution, its tangent, and its gradients by kernel and by input are all products of the form

    out[c_m + j] += Σ_q x[a_m + b_q] · y[q, j]

with different offsets a, b and c. For the convolution itself, a are the windows, b the taps of the
kernel, and y is the kernel. No patches are copied. `tile` computes `ROWS` rows m by `LANES` columns
j at once. Its sums stay in registers, so it reaches the speed of a large matrix product.

numba's own loops would keep the sums in memory, so `tile` is written in LLVM's language. LLVM
splits the vectors to fit the processor. Results do not depend on other rows.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LANES = 16
"""Number of columns of a tile; the columns of y must be a multiple of it."""
ROWS = 6
"""Number of rows of a tile: with AVX2, 12 sums, two columns and one value fill 15 registers."""
CONTRACT = ("contract",)
"""Flag that allows a multiplication and an addition to become one instruction."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that runs beside other threads, and cache it on disk if possible."""
    try:
        return njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # neither this folder nor the user's is writable
        return njit(nogil=True, error_model="numpy")(function)


def _tile_of(rows: int) -> Any:
    """Return the function that computes this many rows of a product."""

    @intrinsic
    def tile(typingctx, x, a, b, y, column, out, c, row):
        """Add the product to rows `row`, … and columns `column`, … of the result."""
        signature = types.void(x, a, b, y, types.intp, out, c, types.intp)

        def generate(context, builder, signature, args):
            def array(index):
                return context.make_array(signature.args[index])(context, builder, args[index])

            x, a, b, y, out, c = (array(index) for index in (0, 1, 2, 3, 5, 6))
            column, row = args[4], args[7]
            number, integer = context.get_value_type(signature.args[0].dtype), column.type
            vector, lane = ir.VectorType(number, LANES), ir.IntType(32)
            size = 4 if isinstance(number, ir.FloatType) else 8
            undefined = ir.Constant(vector, ir.Undefined)
            first = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)

            def constant(value):
                return ir.Constant(integer, value)

            def offset(array, index):
                return builder.load(builder.gep(array.data, [index]))

            def vector_at(array, position):
                return builder.bitcast(builder.gep(array.data, [position]), vector.as_pointer())

            def load(pointer):
                value = builder.load(pointer)
                value.align = size
                return value

            lines = [builder.add(row, constant(i)) for i in range(rows)]
            starts = [builder.gep(x.data, [offset(a, line)]) for line in lines]
            results = [vector_at(out, builder.add(offset(c, line), column)) for line in lines]
            before = [load(result) for result in results]
            count, width = (builder.extract_value(y.shape, i) for i in (0, 1))

            entry = builder.block
            loop, end = (builder.append_basic_block(name) for name in ("terms", "end"))
            builder.branch(loop)
            builder.position_at_end(loop)
            q, position = builder.phi(integer), builder.phi(integer)
            sums = [builder.phi(vector) for _ in range(rows)]
            factors, tap = load(vector_at(y, position)), offset(b, q)
            added = []
            for start, total in zip(starts, sums, strict=True):
                value = builder.load(builder.gep(start, [tap]))
                value = builder.insert_element(undefined, value, lane(0))
                value = builder.shuffle_vector(value, undefined, first)
                term = builder.fmul(value, factors, flags=CONTRACT)
                added.append(builder.fadd(term, total, flags=CONTRACT))
            following = builder.add(q, constant(1)), builder.add(position, width)
            builder.cbranch(builder.icmp_signed("<", following[0], count), loop, end)
            pairs = zip(
                (q, position, *sums),
                (constant(0), column, *before),
                (*following, *added),
                strict=True,
            )
            for phi, initial, later in pairs:
                phi.add_incoming(initial, entry)
                phi.add_incoming(later, loop)

            builder.position_at_end(end)
            for result, total in zip(results, added, strict=True):
                builder.store(total, result).align = size
            return context.get_dummy_value()

        return signature, generate

    return tile


FEW = 4
"""Number of rows of a smaller tile; 64 and 256 taps leave four rows."""
_tile, _few, _row = _tile_of(ROWS), _tile_of(FEW), _tile_of(1)


@compiled
def add_product(x, a, b, y, out, c):
    """Add Σ_q x[a_m + b_q]·y[q, j] to out[c_m + j], for all rows m and all columns j.

    Args:
        x: Values, (any,).
        a: Offset of each row in x, (rows,).
        b: Offset of each term from its row, (terms,); at least one.
        y: Factors, (terms, columns), contiguous; columns are a multiple of `LANES`.
        out: Array that the products are added to, (any,).
        c: Position of each row in `out`, (rows,).
    """
    for column in range(0, y.shape[1], LANES):
        row = 0
        while row + ROWS <= len(a):
            _tile(x, a, b, y, column, out, c, row)
            row += ROWS
        if row + FEW <= len(a):
            _few(x, a, b, y, column, out, c, row)
            row += FEW
        while row < len(a):
            _row(x, a, b, y, column, out, c, row)
            row += 1
