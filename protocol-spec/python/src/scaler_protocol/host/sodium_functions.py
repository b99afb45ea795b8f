"""The functions of libsodium that we call, described for cffi.

Rules:
- `ffi` is made of what cffi writes for `DECLARATIONS`, and a test compares the two. Parsing the declarations whenever a
  program starts would take 150 ms on PyPy; this way, only cffi's backend is needed, and no parser of C.
- After a change of `DECLARATIONS`, copy the arguments that the test shows.
"""

from __future__ import annotations

import _cffi_backend

DECLARATIONS = """
int sodium_init(void);
int crypto_box_keypair(unsigned char *, unsigned char *);
int crypto_scalarmult_base(unsigned char *, const unsigned char *);
int crypto_box_beforenm(unsigned char *, const unsigned char *, const unsigned char *);
int crypto_box_easy_afternm(unsigned char *, const unsigned char *, unsigned long long, const unsigned char *,
    const unsigned char *);
int crypto_box_open_easy_afternm(unsigned char *, const unsigned char *, unsigned long long, const unsigned char *,
    const unsigned char *);
"""

ARGUMENTS = {
    "_version": 0x2601,
    "_types": bytes.fromhex(
        "0000160d 00001703 00000111 0000000f"
        "0000160d 00000111 00001703 0000000f"
        "0000160d 00000111 00000611 00000611 0000000f"
        "0000160d 00000111 00000611 00000c01 00000611 00000611 0000000f"
        "0000160d 0000000f 00000701 00000401"
    ),
    "_globals": (
        *(b"\x00\x00\x08\x23crypto_box_beforenm", 0, b"\x00\x00\x0d\x23crypto_box_easy_afternm", 0),
        *(b"\x00\x00\x00\x23crypto_box_keypair", 0, b"\x00\x00\x0d\x23crypto_box_open_easy_afternm", 0),
        *(b"\x00\x00\x04\x23crypto_scalarmult_base", 0, b"\x00\x00\x14\x23sodium_init", 0),
    ),
}
ffi = _cffi_backend.FFI("libsodium", **ARGUMENTS)
