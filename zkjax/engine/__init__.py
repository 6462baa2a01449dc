"""Many proofs on few devices, with a record of where the time went."""
