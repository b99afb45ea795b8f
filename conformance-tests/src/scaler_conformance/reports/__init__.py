"""Reports, all made of one model (`scaler_conformance.judging.results`)."""
