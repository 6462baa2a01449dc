"""Reading and writing keys, circuits, witnesses and proofs: one module for each ecosystem, its byte layout on top."""
from zkjax.groth16.formats import bellman, circom, points, snarkjs

__all__ = ["bellman", "circom", "points", "snarkjs"]
