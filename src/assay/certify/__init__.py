"""What a trained network does on every input: proofs, counterexamples, certificates and their checker."""
