"""The environment variables by which a client records what reaches its core."""

RECORD_VARIABLE = "SCALER_RECORD"
PAYLOADS_VARIABLE = f"{RECORD_VARIABLE}_PAYLOADS"
LIMIT_VARIABLE = f"{RECORD_VARIABLE}_LIMIT"
