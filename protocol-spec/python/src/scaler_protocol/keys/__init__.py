"""Keys as files: what a peer keeps, what a scheduler admits, where both are found, and the command `scaler keys`.

    scheduler.key ─── server keys ──▶ scheduler ◀── authorized_keys: who may connect, and as what
         │ public                                         ▲ one line each
         ▼                                                │
    owner.key, alice.key, ... ─▶ client, worker, monitor ─┘ public

Rules:
- One file is all that a peer needs: its own secret, and the scheduler's public key.
- A secret is in files that only their user can read, and in memory. It is in no log, no error, no `repr`, and never on
  a command line. Errors name the file and the line, and do not quote it.
- `key_text`, `expiry` and `allow_list` perform no I/O.
"""
