"""The list of admitted keys, as text and as what a scheduler asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_protocol.keys.allow_list import (
    CANCEL,
    DRAIN,
    EXPLAIN,
    INFO,
    PERMISSIONS,
    READ_STATUS,
    ROLES,
    STOP,
    SUBMIT,
    TAKE_TASKS,
    AllowList,
    Grant,
    check_grant,
    usual_tenant,
)
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_text import encode_key, fingerprint

pytestmark = pytest.mark.exhaustive_on_pypy  # files are the same there

ALICE, BOB, CAROL = (bytes([number]) * 32 for number in (1, 2, 3))
NEW_YEAR_2027 = 1_798_761_600.0
TEXT = f"""# The keys of a team.

{encode_key(ALICE)} role=client name=alice  # her laptop
  {encode_key(BOB)}\ttenant=other role=worker expires=2027-01-01 name=bob
"""


def test_a_key_is_admitted_as_its_line_says_and_others_are_not() -> None:
    allowed = AllowList.parse(TEXT, "authorized_keys")

    assert allowed.grant(ALICE, now=0) == Grant("client", "default", "alice", None)
    assert allowed.grant(BOB, now=0) == Grant("worker", "other", "bob", NEW_YEAR_2027)
    assert allowed.grant(CAROL, now=0) is None
    assert allowed.grant(b"", now=0) is None


def test_a_key_is_admitted_until_it_expires() -> None:
    allowed = AllowList.parse(TEXT, "authorized_keys")

    assert allowed.grant(BOB, NEW_YEAR_2027 - 0.001) is not None
    assert allowed.grant(BOB, NEW_YEAR_2027) is None
    assert allowed.grant(ALICE, NEW_YEAR_2027) is not None
    assert list(allowed.grants) == [ALICE, BOB], "the expired one is still listed"


def test_an_empty_list_admits_no_key() -> None:
    for allowed in (AllowList(), AllowList.parse("", "authorized_keys"), AllowList.parse("\n# none yet\n", "a")):
        assert allowed.grant(ALICE, now=0) is None
        assert not allowed.grants


KEY = encode_key(ALICE)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hello", "begins with a public key of 40 characters"),
        (f"role=client name=a {KEY}", "begins with a public key"),
        ("~" * 40 + " role=client name=a", "alphabet"),
        (KEY, r"role=\.\.\. is missing"),
        (f"{KEY} role=client", r"name=\.\.\. is missing"),
        (f"{KEY} role=client name=", "the name must have 1 to 64"),
        (f"{KEY} role=client name=-a", "begin with a letter or digit"),
        (f"{KEY} role=client name=" + "a" * 65, "1 to 64 letters"),
        (f"{KEY} role=client name=alicé", "1 to 64 letters"),
        (f"{KEY} role=client name=a tenant=", "the tenant must have 1 to 64"),
        (f"{KEY} role=root name=a", "the role must be one of client, worker"),
        (f"{KEY} role=client role=client name=a", "role is written twice"),
        (f"{KEY} role=client name=a from=10.0.0.1", "word 4 is not an option"),
        (f"{KEY} role=client name=a readonly", "word 4 is not an option"),
        (f"{KEY} role=client name=a expires=soon", "a time must be like 2027"),
        (f"{KEY} role=client name=a expires=2027-02-30", "no time 2027-02-30"),
        (f"{KEY} {KEY} role=client name=a", "word 2 is not an option"),
    ],
)
def test_a_malformed_line_makes_the_list_an_error_with_the_line_s_number(line: str, problem: str) -> None:
    with pytest.raises(KeyFileError, match=f"^authorized_keys, line 2: .*{problem}") as caught:
        AllowList.parse(f"# comment\n{line}\n", "authorized_keys")
    assert KEY not in str(caught.value), "it may have been a secret one"


def test_a_key_in_two_lines_is_an_error() -> None:
    with pytest.raises(KeyFileError, match=r"^f, line 2: the key is already in line 1"):
        AllowList.parse(f"{KEY} role=client name=a\n{KEY} role=owner name=b\n", "f")


def test_a_line_is_added_and_removed_and_the_others_stay_as_they_were() -> None:
    allowed = AllowList.parse(TEXT, "f")
    longer = allowed.with_line(CAROL, Grant("monitor", "default", "carol", NEW_YEAR_2027))

    assert (
        longer.text
        == TEXT + f"{encode_key(CAROL)} role=monitor tenant=default name=carol expires=2027-01-01T00:00:00Z\n"
    )
    assert AllowList.parse(longer.text, "f").grants == longer.grants
    assert longer.without("carol").text == TEXT == allowed.text
    assert longer.without(encode_key(BOB)).grants.keys() == {ALICE, CAROL}
    assert longer.without(fingerprint(ALICE)).grants.keys() == {BOB, CAROL}


def test_revoking_a_name_revokes_all_of_its_keys() -> None:
    both = AllowList.parse(TEXT, "f").with_line(CAROL, Grant("admin", "default", "alice"))

    assert both.matching("alice").keys() == {ALICE, CAROL}
    assert both.without("alice").grants.keys() == {BOB}


def test_changes_that_are_impossible_are_errors() -> None:
    allowed = AllowList.parse(TEXT, "f")

    with pytest.raises(KeyFileError, match="already authorized"):
        allowed.with_line(ALICE, Grant("client", "default", "again"))
    with pytest.raises(KeyFileError, match="the name must have"):
        allowed.with_line(CAROL, Grant("client", "default", "two\nlines"))
    with pytest.raises(KeyFileError, match="no authorized key has this name, text or fingerprint: 'dave'"):
        allowed.without("dave")
    with pytest.raises(KeyFileError, match="years 1 to 9999"):
        check_grant(Grant("client", "default", "a", float("inf")))


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", fullmatch=True).filter(str.isascii)
grants = st.builds(Grant, st.sampled_from(ROLES), names, names, st.none() | st.integers(0, 10**11).map(float))


@given(st.dictionaries(st.binary(min_size=32, max_size=32), grants, max_size=5))
def test_each_list_that_is_written_is_read_as_the_same(all_grants: dict[bytes, Grant]) -> None:
    allowed = AllowList()
    for key, grant in all_grants.items():
        allowed = allowed.with_line(key, grant)

    assert AllowList.parse(allowed.text, "f").grants == all_grants


@given(st.text())
def test_any_other_text_is_a_list_or_an_error_of_one_kind(text: str) -> None:
    try:
        allowed = AllowList.parse(text, "f")
    except KeyFileError:
        return
    assert AllowList.parse(allowed.text, "f").grants == allowed.grants


ALLOWED_REQUESTS = {
    "client": {SUBMIT, CANCEL, EXPLAIN, INFO},
    "worker": {TAKE_TASKS},
    "monitor": {INFO, READ_STATUS},
    "admin": {INFO, READ_STATUS, DRAIN, STOP},
    "provisioner": {INFO, READ_STATUS, DRAIN},
    "owner": {SUBMIT, CANCEL, EXPLAIN, TAKE_TASKS, INFO, READ_STATUS, DRAIN, STOP},
}
ALLOWED_HELLOS = {
    "client": {"client"},
    "worker": {"worker"},
    "monitor": {"monitor"},
    "admin": {"client", "monitor"},
    "provisioner": {"client", "monitor"},
    "owner": {"client", "worker", "monitor"},
}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_the_table_says_and_no_more(role: str) -> None:
    grant = Grant(role, "default", "a")

    assert {request for request in ALLOWED_REQUESTS["owner"] if grant.may(request)} == ALLOWED_REQUESTS[role]
    assert {each for each in ("client", "worker", "monitor", "scheduler") if grant.may_greet_as(each)} == (
        ALLOWED_HELLOS[role]
    )
    assert not grant.may("something new")
    assert PERMISSIONS.keys() == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_all_tenants_are_for_roles_that_own_nothing(role: str) -> None:
    line = f"{encode_key(ALICE)} role={role} tenant=* name=shared"
    if role in ("worker", "monitor", "admin", "provisioner"):
        assert AllowList.parse(line, "list").grant(ALICE, now=0) == Grant(role, "*", "shared")
    else:
        with pytest.raises(KeyFileError, match=r"line 1: the tenant '\*', which is all of them, is only for the roles"):
            AllowList.parse(line, "list")


@pytest.mark.parametrize("tenant", ["**", "*a", "a*", "", "a b", "a" * 65])
def test_other_tenants_have_names(tenant: str) -> None:
    with pytest.raises(KeyFileError, match="the tenant must have"):
        check_grant(Grant("worker", tenant, "alice"))


def test_who_watches_does_so_for_all_tenants_unless_one_is_named() -> None:
    usual = {role: usual_tenant(role) for role in ROLES}
    assert {role for role, tenant in usual.items() if tenant == "*"} == {"monitor", "admin", "provisioner"}
    assert set(usual.values()) == {"*", "default"}
