"""Events: each browser gets its page, as often as it can take it."""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable, Dict

import pytest
from ui.browsing import DEADLINE_SECONDS, Site, query, told_state

from scaler_appliance.ui.access import TrustedProxies
from scaler_appliance.ui.application import MAXIMUM_STREAMS, MAXIMUM_STREAMS_OF_ADDRESS, MAXIMUM_STREAMS_OF_SESSION
from scaler_appliance.ui.browser_sessions import ROTATION_SECONDS, SESSION_SECONDS, BrowserSessions
from scaler_appliance.ui.events import LARGEST_SHARE, Events, to_json


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), DEADLINE_SECONDS))


def tick(site: Site) -> None:
    site.feed.step()
    site.watch.tick()


def test_an_event_comes_at_once_and_with_each_tick() -> None:
    async def test() -> None:
        site = Site()
        stream = site.open("/events?page=workers&limit=1")
        first = await stream.event()
        assert first["head"]["workers"] == 4
        assert len(first["body"]["rows"]) == 1
        tick(site)
        second = await stream.event()
        assert second["head"]["uptime_seconds"] == first["head"]["uptime_seconds"] + 1
        headers = dict(stream.headers)
        assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert headers[b"x-accel-buffering"] == b"no"
        await stream.go()

    run(test)


def test_silence_of_the_scheduler_is_told_too() -> None:
    async def test() -> None:
        site = Site()
        stream = site.open("/events?page=clients")
        await stream.event()
        site.feed.age = 12.0
        site.watch.tick()
        event = await stream.event()
        assert (event["head"]["is_connected"], event["head"]["age_seconds"]) == (False, 12.0)
        await stream.go()

    run(test)


def test_each_browser_gets_its_own_increments() -> None:
    async def test() -> None:
        site = Site(steps=5)
        early = site.open("/events?page=overview")
        assert len((await early.event())["body"]["series"]["time"]) == 5
        tick(site)
        assert len((await early.event())["body"]["series"]["time"]) == 1
        late = site.open("/events?page=overview")
        assert len((await late.event())["body"]["series"]["time"]) == 6
        await early.go()
        await late.go()

    run(test)


def test_a_browser_that_does_not_read_gets_fewer_events_and_nothing_gathers() -> None:
    async def test() -> None:
        site = Site()
        stream = site.open("/events?page=overview")
        await stream.event()
        stream.has_room.clear()
        tick(site)
        await asyncio.sleep(0)
        for _ in range(50):
            tick(site)
            await asyncio.sleep(0)
        assert stream.unread <= 1
        stream.has_room.set()
        await stream.event()
        latest = await stream.event()
        assert len(latest["body"]["series"]["time"]) == 50
        await stream.go()

    run(test)


def test_a_page_that_is_closed_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        site = Site()
        made = []
        original = Events.next

        def counted(events: Events) -> Dict[str, Any]:
            made.append(events)
            return original(events)

        monkeypatch.setattr(Events, "next", counted)
        stream = site.open("/events?page=workers")
        await stream.event()
        assert site.watch.subscribers == 1
        await stream.go()
        assert site.watch.subscribers == 0
        before = len(made)
        tick(site)
        await asyncio.sleep(0)
        assert len(made) == before

    run(test)


def test_all_streams_end_when_the_program_does() -> None:
    async def test() -> None:
        site = Site()
        streams = [site.open("/events?page=workers") for _ in range(5)]
        for stream in streams:
            await stream.event()
        site.watch.close()
        for stream in streams:
            await asyncio.wait_for(stream.task, DEADLINE_SECONDS)
        assert site.watch.subscribers == 0

    run(test)


def test_there_are_so_many_streams_at_most() -> None:
    async def test() -> None:
        site = Site()
        streams = []
        for number in range(MAXIMUM_STREAMS):
            streams.append(site.open("/events?page=graphs", f"10.0.0.{number // 50}"))
            await streams[-1].event()
        answer = await site.open("/events?page=graphs", "10.0.1.1").whole()
        assert answer.status == 503
        assert answer.headers["retry-after"] == "10"
        assert "200 pages are open already" in answer.json()["error"]
        await streams.pop().go()
        streams.append(site.open("/events?page=graphs", "10.0.1.1"))
        await streams[-1].event()
        for stream in streams:
            await stream.go()

    run(test)


def test_one_address_cannot_take_all_streams() -> None:
    async def test() -> None:
        site = Site()
        streams = [site.open("/events?page=graphs", "10.0.0.1") for _ in range(MAXIMUM_STREAMS_OF_ADDRESS)]
        for stream in streams:
            await stream.event()
        answer = await site.open("/events?page=graphs", "10.0.0.1").whole()
        assert (answer.status, answer.headers["retry-after"]) == (429, "10")
        assert "from 10.0.0.1, the most for one address" in answer.json()["error"]
        streams.append(site.open("/events?page=graphs", "10.0.0.2"))
        await streams[-1].event()
        for stream in streams:
            await stream.go()

    run(test)


def test_one_session_has_so_many_streams_at_most_from_whatever_address() -> None:
    async def test() -> None:
        sessions = BrowserSessions(lambda: 0.0, lambda: "s" * 32)
        site = Site(token="t" * 16, sessions=sessions)
        logins = [sessions.open() for _ in range(2)]
        browsers = [{"cookie": f"scaler_ui_8081={each.cookie}", "x_scaler_page_key": each.key} for each in logins]
        streams = [
            site.open("/events?page=graphs", f"10.0.0.{number}", **browsers[0])
            for number in range(MAXIMUM_STREAMS_OF_SESSION)
        ]
        for stream in streams:
            await stream.event()
        answer = await site.open("/events?page=graphs", "10.0.1.1", **browsers[0]).whole()
        assert answer.status == 429
        assert "the most for one session or user" in answer.json()["error"]
        streams.append(site.open("/events?page=graphs", "10.0.1.1", **browsers[1]))
        await streams[-1].event()
        for stream in streams:
            await stream.go()

    run(test)


def test_users_of_a_trusted_proxy_share_its_address_and_have_limits_of_their_own() -> None:
    async def test() -> None:
        proxies = TrustedProxies("x-forwarded-user", frozenset({"10.0.0.1"}))
        site = Site(token="t" * 16, proxies=proxies)
        streams = []
        for number in range(MAXIMUM_STREAMS_OF_ADDRESS + 20):
            user = f"user{number // MAXIMUM_STREAMS_OF_SESSION}"
            streams.append(site.open("/events?page=graphs", "10.0.0.1", x_forwarded_user=user))
            await streams[-1].event()
        answer = await site.open("/events?page=graphs", "10.0.0.1", x_forwarded_user="user0").whole()
        assert answer.status == 429
        for stream in streams:
            await stream.go()

    run(test)


@pytest.mark.parametrize("ends_by", ["logging out", "rotation", "expiry"])
def test_a_stream_ends_with_its_session_or_when_its_cookie_is_to_be_replaced(ends_by: str) -> None:
    async def test() -> None:
        now = 0.0
        sessions = BrowserSessions(lambda: now, lambda: "s" * 32)
        site = Site(token="t" * 16, sessions=sessions)
        cookie, key = sessions.open()
        stream = site.open("/events?page=graphs", cookie=f"scaler_ui_8081={cookie}", x_scaler_page_key=key)
        await stream.event()
        tick(site)
        await stream.event()
        if ends_by == "logging out":
            sessions.close(cookie.partition(".")[0])
        else:
            now += ROTATION_SECONDS if ends_by == "rotation" else SESSION_SECONDS
        tick(site)
        await asyncio.wait_for(stream.task, DEADLINE_SECONDS)
        assert site.watch.subscribers == 0

    run(test)


def test_a_body_that_takes_long_comes_less_often_and_the_head_each_time() -> None:
    state, _ = told_state()
    now = 0.0

    def page(*_: Any) -> Any:
        nonlocal now
        now += 0.5
        return {"rows": []}, None

    events = Events(state, page, query(), lambda: now)
    bodies = []
    for second in range(20):
        now = max(now, float(second))
        event = events.next()
        assert event["head"]["workers"] == 4
        bodies.append(event["body"])

    assert bodies[0] == {"rows": []}
    assert sum(body is not None for body in bodies) == 20 * LARGEST_SHARE / 0.5


def test_whatever_a_name_holds_an_event_is_one_line_of_json() -> None:
    text = "\u2028\r\n\n\0 </script> \ud800 é 雪 \x1b[31m"

    assert b"\n" not in to_json({"name": text})
    assert b"\r" not in to_json({"name": text})
    assert to_json({"name": text}).isascii()
