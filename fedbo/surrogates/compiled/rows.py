"""Sums of rows of a matrix, eight columns at once, each number in the order of the rows.

Matrices of some tens of rows are too small for the compiler's own vectors: it takes thirty-two columns at a time, and what
is left one by one. Here a row has a multiple of eight columns, and those beyond the matrix hold anything.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fedbo.surrogates.compiled.jit import compiled

WIDTH = 8  # columns
_unpacked: Any = cgutils.unpack_tuple


@compiled()
def padded(n: int) -> int:
    """Return the least multiple of eight that is not less than n."""
    return -(-n // WIDTH) * WIDTH


def _add_rows(typing_context: Any, target: Any, weights: Any, rows: Any, places: Any, subtracts: Any) -> Any:
    """Add weights[k, column] rows[k] to row `row` of the target, or subtract them, for `first` <= k < `last`.

    All matrices are `(n, w)`, w a multiple of eight. `places` are (row, column, first, last, at); the sum goes to the eight
    columns from `at` on.
    """
    signature = types.void(target, weights, rows, places, types.boolean)
    vector, whole = ir.VectorType(ir.DoubleType(), WIDTH), ir.IntType(32)
    none, all_first = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(whole, WIDTH), None)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = zip(signature.args[:3], arguments[:3], strict=True)
        to, by, of = (context.make_array(kind)(context, builder, value) for kind, value in kinds)
        row, column, first, last, at = _unpacked(builder, arguments[3], 5)
        width = _unpacked(builder, to.shape, 2)[1]

        def place(array: Any, i: Any, j: Any) -> Any:
            return builder.gep(array.data, [builder.add(builder.mul(i, width), j)])

        def eight(array: Any, i: Any) -> Any:
            return builder.bitcast(place(array, i, at), vector.as_pointer())

        before, begun = builder.block, builder.load(eight(to, row), align=8)
        head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        k, total = builder.phi(first.type), builder.phi(vector)
        builder.cbranch(builder.icmp_signed("<", k, last), body, end)
        builder.position_at_end(body)
        weight = builder.load(place(by, k, column))
        weight = builder.select(arguments[4], builder.fneg(weight), weight)
        spread = builder.shuffle_vector(builder.insert_element(none, weight, ir.Constant(whole, 0)), none, all_first)
        more = builder.fadd(total, builder.fmul(spread, builder.load(eight(of, k), align=8)))
        following = builder.add(k, ir.Constant(first.type, 1))
        builder.branch(head)
        for phi, at_first, later in ((k, first, following), (total, begun, more)):
            phi.add_incoming(at_first, before)
            phi.add_incoming(later, body)
        builder.position_at_end(end)
        builder.store(total, eight(to, row), align=8)
        return context.get_dummy_value()

    return signature, generate


add_rows: Any = intrinsic(_add_rows)
