"""Reports, all made from the same model (`scaler_conformance.judging.results`)."""
