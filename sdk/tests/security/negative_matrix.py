"""Which test shows what: for each way to attack, and each role that an attacker may have.

    attack ──▶ client, worker, monitor: they come to an honest scheduler        scheduler: honest peers come to it

    caller ──▶ the data address of an honest worker        an honest worker ──▶ holder, at its data address

Rules:
- Each cell names tests, as FILE::FUNCTION from the root of the tree, or says why there is nothing to test.
- At least one test of a cell has its attacker in a process of another user (see `another_user`), where root runs it.
- `test_negative_matrix` checks that there is a cell for each pair, that each test that is named exists, and that one of
  each cell has another user.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Tuple, Union

LIARS = ("client", "worker", "monitor", "scheduler")
ATTACKS = (
    "no key",
    "wrong server key",
    "wrong role",
    "revoked",
    "expired",
    "replayed",
    "replayed after a restart",
    "tampered",
    "truncated",
    "NULL downgrade",
    "PLAIN downgrade",
    "slow handshake",
    "handshake flood",
    "key file 0644",
    "foreign tenant's object",
    "foreign tenant's actor",
    "foreign tenant's task",
    "foreign tenant's cancel",
    "foreign tenant's drain",
    "foreign tenant's status",
    "another user of the host",
)

Tests = Tuple[str, ...]


class NothingToTest(NamedTuple):
    why: str


Cell = Union[Tests, NothingToTest]

_HERE = "sdk/tests/security"
_ADMITTED, _ATTACKERS, _LYING = (
    f"{_HERE}/test_{name}.py::test_" for name in ("who_is_admitted", "attackers", "lying_schedulers")
)
_MEDDLED, _MONITORS, _TENANTS, _OTHER = (
    f"{_HERE}/test_{name}.py::test_" for name in ("meddled_connections", "monitors", "tenants", "another_user")
)

_PEER_IS_TURNED_AWAY = f"{_OTHER}a_peer_is_turned_away"
_CLIENT_IS_TURNED_AWAY = (f"{_ADMITTED}a_client_is_turned_away", _PEER_IS_TURNED_AWAY)
_WORKER_IS_TURNED_AWAY = (f"{_ADMITTED}a_worker_is_turned_away", _PEER_IS_TURNED_AWAY)
_MONITOR_IS_TURNED_AWAY = (f"{_MONITORS}a_monitor_is_turned_away", _PEER_IS_TURNED_AWAY)
_REVOKED = f"{_OTHER}a_session_ends_when_its_key_is_revoked"
_EXPIRED = f"{_OTHER}sessions_end_when_their_keys_expire"
_WRONG_ROLE = f"{_OTHER}a_key_of_another_role_opens_nothing"
_OPEN_KEY_FILE = f"{_OTHER}a_key_file_that_all_can_read_is_of_no_use_to_others_programs"
_LIAR = (
    f"{_LYING}a_client_tells_a_liar_nothing",
    f"{_LYING}a_worker_tells_a_liar_nothing",
    f"{_MEDDLED}a_monitor_tells_a_liar_nothing",
)
_MEDDLER = (f"{_MEDDLED}who_changes_or_repeats_what_a_scheduler_says_gets_nothing",)
_CHANGED = (
    f"{_ATTACKERS}what_is_changed_on_its_way_closes_the_connection",
    f"{_ATTACKERS}a_message_that_is_sent_twice_closes_the_connection",
)
_CUT = (f"{_ATTACKERS}a_connection_that_ends_in_the_handshake_leaves_nothing",)
_OPENING = (f"{_ATTACKERS}other_openings_close_the_connection",)
_RECORDED = (f"{_ATTACKERS}a_recorded_connection_is_of_no_use",)
_RESTART = (f"{_ATTACKERS}a_connection_that_was_recorded_before_a_restart_is_of_no_use_after_it",)
_SLOW = (
    f"{_ATTACKERS}a_handshake_that_stops_is_given_up",
    f"{_ATTACKERS}honest_peers_connect_beside_callers_that_do_nothing",
)
_FLOOD = (f"{_ATTACKERS}honest_peers_connect_beside_a_flood_of_handshakes_from_elsewhere",)
_NO_HELLO = (
    _WRONG_ROLE,
    f"{_ADMITTED}a_client_with_the_key_of_another_role_is_refused",
    f"{_ADMITTED}a_worker_with_the_key_of_another_role_is_refused",
)
_WORKER_ASKS = (f"{_TENANTS}a_worker_asks_for_nothing_that_is_a_client_s",)
_KEEPS_TENANTS_APART = NothingToTest("a scheduler that has proved its key is what keeps tenants apart")


def _each(tests: Tests) -> Dict[str, Cell]:
    """The same tests for client, worker and monitor, of which each is a parameter."""
    return {"client": tests, "worker": tests, "monitor": tests}


MATRIX: Mapping[str, Mapping[str, Cell]] = {
    "no key": {
        "client": _CLIENT_IS_TURNED_AWAY,
        "worker": _WORKER_IS_TURNED_AWAY,
        "monitor": (f"{_MONITORS}a_monitor_without_a_key_is_told_how_to_get_one", *_MONITOR_IS_TURNED_AWAY),
        "scheduler": (*_LIAR, f"{_LYING}who_takes_the_port_of_a_dead_scheduler_gets_no_task"),
    },
    "wrong server key": {
        "client": _CLIENT_IS_TURNED_AWAY,
        "worker": _WORKER_IS_TURNED_AWAY,
        "monitor": _MONITOR_IS_TURNED_AWAY,
        "scheduler": (*_LIAR, f"{_LYING}who_takes_the_port_of_a_dead_scheduler_gets_no_task"),
    },
    "wrong role": {
        "client": (
            _WRONG_ROLE,
            f"{_ADMITTED}a_client_with_the_key_of_another_role_is_refused",
            f"{_OTHER}a_request_that_is_for_another_role_ends_the_session",
            f"{_OTHER}only_who_may_stops_something",
        ),
        "worker": (
            _WRONG_ROLE,
            f"{_ADMITTED}a_worker_with_the_key_of_another_role_is_refused",
            f"{_TENANTS}a_worker_asks_for_nothing_that_is_a_client_s",
        ),
        "monitor": (_WRONG_ROLE, f"{_MONITORS}a_key_of_another_role_shows_nothing"),
        "scheduler": (f"{_LYING}a_key_that_was_stolen_elsewhere_makes_no_scheduler", *_LIAR),
    },
    "revoked": {
        "client": (
            *_CLIENT_IS_TURNED_AWAY,
            _REVOKED,
            f"{_ADMITTED}a_client_whose_key_is_revoked_loses_its_session_at_once",
        ),
        "worker": (
            *_WORKER_IS_TURNED_AWAY,
            _REVOKED,
            f"{_ADMITTED}tasks_of_a_worker_whose_key_is_revoked_run_elsewhere",
        ),
        "monitor": (
            *_MONITOR_IS_TURNED_AWAY,
            _REVOKED,
            f"{_MONITORS}a_monitor_whose_key_is_revoked_loses_its_connection_at_once",
        ),
        "scheduler": (
            f"{_LYING}a_key_that_was_stolen_elsewhere_makes_no_scheduler",
            *_LIAR,
            f"{_HERE}/test_scaler_keys.py::test_key_files_stay_valid_until_the_old_server_key_is_forgotten",
        ),
    },
    "expired": {
        "client": (*_CLIENT_IS_TURNED_AWAY, _EXPIRED, f"{_ADMITTED}a_key_that_expires_ends_its_session"),
        "worker": (*_WORKER_IS_TURNED_AWAY, _EXPIRED),
        "monitor": (*_MONITOR_IS_TURNED_AWAY, _EXPIRED, f"{_MONITORS}a_monitor_s_key_that_expires_ends_its_connection"),
        "scheduler": NothingToTest("the keys of schedulers do not expire: they are rotated"),
    },
    "replayed": {**_each(_RECORDED), "scheduler": _MEDDLER},
    "replayed after a restart": {**_each(_RESTART), "scheduler": _MEDDLER},
    "tampered": {**_each(_CHANGED), "scheduler": _MEDDLER},
    "truncated": {**_each(_CUT), "scheduler": _MEDDLER},
    "NULL downgrade": {**_each(_OPENING), "scheduler": (*_LIAR, *_MEDDLER)},
    "PLAIN downgrade": {**_each(_OPENING), "scheduler": (*_LIAR, *_MEDDLER)},
    "slow handshake": {**_each(_SLOW), "scheduler": _LIAR},
    "handshake flood": {**_each(_FLOOD), "scheduler": _MEDDLER},
    "key file 0644": {
        "client": (*_CLIENT_IS_TURNED_AWAY, _OPEN_KEY_FILE),
        "worker": _WORKER_IS_TURNED_AWAY,
        "monitor": _MONITOR_IS_TURNED_AWAY,
        "scheduler": (
            f"{_HERE}/test_scaler_keys.py::test_a_scheduler_does_not_start_with_keys_that_others_can_change_or_read",
            f"{_OTHER}a_scheduler_does_not_use_keys_that_another_user_has_read_or_changed",
        ),
    },
    "foreign tenant's object": {
        "client": (
            f"{_TENANTS}a_foreign_object_is_answered_like_an_unknown_one",
            f"{_TENANTS}a_task_that_needs_a_foreign_object_fails_like_one_that_needs_an_unknown_one",
        ),
        "worker": (f"{_TENANTS}a_foreign_object_is_answered_like_an_unknown_one",),
        "monitor": (*_NO_HELLO, f"{_TENANTS}a_monitor_s_key_shows_what_is_its_tenant_s"),
        "scheduler": _KEEPS_TENANTS_APART,
    },
    "foreign tenant's actor": {
        "client": (f"{_TENANTS}a_foreign_actor_is_not_called",),
        "worker": _WORKER_ASKS,  # a call is a task
        "monitor": _NO_HELLO,
        "scheduler": _KEEPS_TENANTS_APART,
    },
    "foreign tenant's task": {
        "client": (f"{_TENANTS}a_foreign_task_is_neither_cancelled_nor_explained",),
        "worker": (
            f"{_TENANTS}a_worker_cannot_report_for_another_tenant_s_tasks",
            f"{_TENANTS}tasks_run_on_workers_of_their_tenant_and_on_shared_ones",
        ),
        "monitor": _NO_HELLO,
        "scheduler": _KEEPS_TENANTS_APART,
    },
    "foreign tenant's cancel": {
        "client": (f"{_TENANTS}a_foreign_task_is_neither_cancelled_nor_explained",),
        "worker": _WORKER_ASKS,
        "monitor": _NO_HELLO,
        "scheduler": _KEEPS_TENANTS_APART,
    },
    "foreign tenant's drain": {
        "client": (
            f"{_TENANTS}a_foreign_worker_is_not_asked_to_leave",
            f"{_TENANTS}an_admin_of_a_tenant_cannot_stop_the_scheduler",
        ),
        "worker": _WORKER_ASKS,
        "monitor": _NO_HELLO,
        "scheduler": _KEEPS_TENANTS_APART,
    },
    "foreign tenant's status": {
        "client": (
            f"{_TENANTS}what_a_client_asks_about_the_cluster_is_about_its_tenant",
            f"{_MONITORS}a_key_of_another_role_shows_nothing",
        ),
        "worker": (*_WORKER_ASKS, f"{_MONITORS}a_key_of_another_role_shows_nothing"),
        "monitor": (
            f"{_OTHER}a_monitor_sees_nothing_of_another_tenant",
            f"{_TENANTS}a_monitor_s_key_shows_what_is_its_tenant_s",
        ),
        "scheduler": _KEEPS_TENANTS_APART,
    },
    "another user of the host": {
        "client": (f"{_ADMITTED}another_user_of_the_host_gets_nothing",),
        "worker": (f"{_ADMITTED}another_user_of_the_host_gets_nothing",),
        "monitor": (
            f"{_MONITORS}another_user_of_the_host_sees_no_status",
            "appliance/tests/shell/publishing/test_monitors_with_keys.py::test_a_process_of_another_user_needs_a_key_at_an_address_without_a_file",
        ),
        "scheduler": (f"{_LYING}a_local_socket_that_another_user_took_before_the_scheduler_gets_nothing",),
    },
}

DATA_LIARS = ("caller", "holder")
DATA_ATTACKS = (
    "no key",
    "wrong server key",
    "wrong role",
    "revoked",
    "expired",
    "replayed",
    "replayed ticket",
    "forged ticket",
    "ticket for another object",
    "ticket of another tenant",
    "tampered",
    "truncated",
    "NULL downgrade",
    "PLAIN downgrade",
    "slow handshake",
    "handshake flood",
    "too many bytes",
    "too few bytes",
    "another object's bytes",
    "no answer",
    "an answer that ends half way",
    "wrong bytes",
)

_CALLERS, _HOLDERS = (f"{_HERE}/data_addresses/test_{name}.py::test_" for name in ("callers", "lying_holders"))
_DATA_OPENING = (f"{_CALLERS}other_openings_close_the_connection",)
_DATA_CHANGED = (f"{_CALLERS}a_handshake_that_was_changed_or_cut_closes_the_connection",)
_OTHER_KEY = (f"{_CALLERS}a_ticket_is_of_no_use_with_another_key",)
_TAKEN_BACK = (f"{_CALLERS}a_ticket_is_of_no_use_when_its_key_is_revoked_or_has_expired",)
_MADE_UP = (f"{_CALLERS}a_ticket_is_not_made_up_nor_used_again",)
_LYING_HOLDER = (f"{_HOLDERS}a_lie_does_not_get_into_an_object",)
_BELIEVED = (f"{_HOLDERS}a_holder_is_believed_what_it_holds_as_it_is_believed_its_results",)
_SHOWS_NO_TICKET = NothingToTest("a holder shows no ticket: the scheduler tells the fetcher its address and key")
_HAS_TO_PROVE_ITS_KEY = NothingToTest("a fetcher's end is that of a client with its scheduler, where this is tried")
_CALLER_SENDS_REQUESTS = NothingToTest("a caller sends requests, and no bytes of objects")
_HOLDER_LEAVES = NothingToTest("who has no session as a worker is not named to others as a holder")

DATA_ADDRESS: Mapping[str, Mapping[str, Cell]] = {
    "no key": {"caller": _DATA_OPENING, "holder": _LYING_HOLDER},
    "wrong server key": {"caller": _DATA_OPENING, "holder": _LYING_HOLDER},
    "wrong role": {"caller": _OTHER_KEY, "holder": _HOLDER_LEAVES},
    "revoked": {"caller": _TAKEN_BACK, "holder": _HOLDER_LEAVES},
    "expired": {"caller": _TAKEN_BACK, "holder": _HOLDER_LEAVES},
    "replayed": {"caller": (f"{_CALLERS}a_recorded_connection_is_of_no_use",), "holder": _HAS_TO_PROVE_ITS_KEY},
    "replayed ticket": {"caller": _MADE_UP, "holder": _SHOWS_NO_TICKET},
    "forged ticket": {"caller": _MADE_UP, "holder": _SHOWS_NO_TICKET},
    "ticket for another object": {
        "caller": (f"{_CALLERS}a_ticket_opens_no_other_object",),
        "holder": _SHOWS_NO_TICKET,
    },
    "ticket of another tenant": {
        "caller": (f"{_CALLERS}a_worker_of_another_tenant_gets_no_ticket", *_OTHER_KEY),
        "holder": _SHOWS_NO_TICKET,
    },
    "tampered": {"caller": _DATA_CHANGED, "holder": _HAS_TO_PROVE_ITS_KEY},
    "truncated": {"caller": _DATA_CHANGED, "holder": _LYING_HOLDER},
    "NULL downgrade": {"caller": _DATA_OPENING, "holder": _LYING_HOLDER},
    "PLAIN downgrade": {"caller": _DATA_OPENING, "holder": _HAS_TO_PROVE_ITS_KEY},
    "slow handshake": {
        "caller": (f"{_CALLERS}workers_are_served_beside_callers_that_do_nothing",),
        "holder": _LYING_HOLDER,
    },
    "handshake flood": {
        "caller": (f"{_CALLERS}workers_are_served_beside_a_flood_of_handshakes",),
        "holder": _HAS_TO_PROVE_ITS_KEY,
    },
    "too many bytes": {"caller": _CALLER_SENDS_REQUESTS, "holder": _LYING_HOLDER},
    "too few bytes": {"caller": _CALLER_SENDS_REQUESTS, "holder": _LYING_HOLDER},
    "another object's bytes": {"caller": _CALLER_SENDS_REQUESTS, "holder": _LYING_HOLDER},
    "no answer": {"caller": _CALLER_SENDS_REQUESTS, "holder": _LYING_HOLDER},
    "an answer that ends half way": {"caller": _CALLER_SENDS_REQUESTS, "holder": _LYING_HOLDER},
    "wrong bytes": {"caller": _CALLER_SENDS_REQUESTS, "holder": _BELIEVED},
}
"""What is tried at the data addresses of workers: by callers, and by holders with honest callers."""

_FIRST = f"{_HERE}/test_first_attacks.py::test_"
FIRST_ATTACKS: Mapping[str, Tests] = {
    "another uid submitted tasks that ran as root": (f"{_ADMITTED}another_user_of_the_host_gets_nothing",),
    "a rogue worker forged results that executed in clients, even in a JSON-only client": (
        f"{_HERE}/test_pickle_bombs.py::test_what_a_rogue_worker_returns_is_loaded_by_no_client_that_calls_in_json",
        f"{_HERE}/test_pickle_bombs.py::test_a_client_that_calls_in_json_loads_nothing_of_a_lying_scheduler",
    ),
    "the function python:os:system cannot be turned off": (
        "sdk/tests/worker/agent/shell/test_only_named.py::test_it_unpickles_nothing_and_runs_nothing_else",
        "sdk/tests/worker/agent/shell/test_only_named.py::test_its_hello_offers_neither_pickles_nor_places",
    ),
    "another client's object was read by guessing at most 35 ids": (
        f"{_TENANTS}another_tenant_s_objects_are_not_found_by_guessing",
    ),
    "who takes the port after a scheduler dies gets its workers and clients": (
        f"{_LYING}who_takes_the_port_of_a_dead_scheduler_gets_no_task",
    ),
    "234 idle connections locked everyone out": (f"{_ATTACKERS}honest_peers_connect_beside_callers_that_do_nothing",),
    "three peers took 450 MiB before saying Hello": (f"{_FIRST}peers_that_have_not_said_hello_take_no_memory",),
    "one Hello forged a [CRITICAL] log line": (f"{_FIRST}a_hello_forges_no_line_of_the_log",),
    "the UI's cookie is its token and leaks to other local ports": (
        "appliance/tests/ui/test_access.py::test_a_cookie_says_nothing_about_the_token",
        "appliance/tests/browser/test_login.py::test_a_server_at_another_port_gets_the_cookie_and_sees_nothing_with_it",
    ),
    "--link-file can be pre-created by another user": (
        "protocol-spec/python/tests/host/test_output_files.py::test_nothing_is_written_to_a_file_that_another_user_has_prepared",
    ),
}
"""What an attacker found before there were keys, and the tests in which it is tried again."""
