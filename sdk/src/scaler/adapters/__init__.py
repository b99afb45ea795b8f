"""Scaler as the engine of other libraries. Each module imports its library only when that library is used."""
