"""A real Redis behind the store: crashes, lost answers and races change nothing twice, and no tenant reaches another's keys."""

from __future__ import annotations

import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from drivers import PATIENCE
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry
from redis_scenes import (  # noqa: F401  # the fixtures are used by their names
    CHANGES,
    admin_fixture,
    everything,
    fill,
    prepared,
    read,
    servers_fixture,
    store_fixture,
    url_fixture,
)
from redis_server import RedisServer
from store_scenes import MINE, asked, begin, bodies, clock, note, row, told

import phronomy
from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.stores import (
    Append,
    AuditFilter,
    Behind,
    Branch,
    BranchFilter,
    CheckpointFilter,
    Claim,
    Entry,
    PendingFilter,
    RedisStore,
)
from phronomy.stores.redis import store as redis_store
from phronomy.stores.redis.store import SIZE

HERE = Path(__file__).parent


# Crashes and lost answers


def test_nothing_that_was_answered_is_lost_when_the_server_is_killed(servers: Callable[..., RedisServer]) -> None:
    server = servers()
    store = RedisStore(server.url(), clock=clock)
    enough, written = threading.Event(), dict[str, int]()

    def work(id: str) -> None:
        begin(store, id)
        with suppress(StoreError):
            for seq in itertools.count(1):
                store.append(
                    Append(
                        branch_id=id, seq=seq, take="w", release=True, entries=(note(f"{id} {seq}"), note("also"))[:1]
                    )
                )
                written[id] = seq
                if seq == 20:
                    enough.set()

    threads = [threading.Thread(target=work, args=(f"b{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(PATIENCE)
    server.kill()
    for thread in threads:
        thread.join(PATIENCE)
    with pytest.raises(StoreError, match=rf"Redis at 127.0.0.1:{server.port} cannot be reached"):
        store.branches()

    server.start()
    assert len(written) == 4
    for id, last in written.items():
        kept = bodies(store, id)
        assert kept[:last] == [f"{id} {seq}" for seq in range(1, last + 1)]
        assert len(kept) in (last, last + 1), "one more may have been written whose answer was lost"
        assert store.lineage(branch_id=id).branch.seq == len(kept) + 1
    store.close()


class Proxy:
    """Stands between a client and a server. The next `cuts` calls of a script lose their connection `where`: before the server has
    seen the call, or after it has answered."""

    def __init__(self, port: int) -> None:
        self.server, self.cuts, self.where, self.calls = port, 0, "after", 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        cut = False
        with near, socket.create_connection(("127.0.0.1", self.server)) as far, suppress(OSError):
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(1 << 20)
                    if not data or (cut and ready is far):
                        return
                    if ready is near and b"EVALSHA" in data:
                        self.calls += 1
                        cut = self.cuts > 0
                        self.cuts -= cut
                        if cut and self.where == "before":
                            return
                    (far if ready is near else near).sendall(data)


@pytest.fixture
def proxy(servers: Callable[..., RedisServer]) -> Iterator[Proxy]:
    proxy = Proxy(servers().port)
    yield proxy
    proxy.listener.shutdown(socket.SHUT_RDWR)
    proxy.listener.close()


@pytest.mark.few(8)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_whose_connection_is_cut_is_made_once(proxy: Proxy, url: str, change: str, where: str) -> None:
    cut, sound = prepared(RedisStore(proxy.url, clock=clock)), prepared(RedisStore(url, clock=clock))
    proxy.cuts, proxy.where, proxy.calls = 1, where, 0
    assert CHANGES[change](cut) == CHANGES[change](sound)
    assert proxy.calls == 2
    assert everything(cut) == everything(sound)
    cut.close()
    sound.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_driver_that_repeats_commands_by_itself_changes_nothing_twice(proxy: Proxy, url: str, change: str) -> None:
    """The default client of redis-py does, since its version 6."""
    client = redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 10))
    cut, sound = prepared(RedisStore(client=client, clock=clock)), prepared(RedisStore(url, clock=clock))
    proxy.cuts, proxy.calls = 3, 0
    assert CHANGES[change](cut) == CHANGES[change](sound)
    assert proxy.calls == 4
    assert everything(cut) == everything(sound)
    client.close()
    sound.close()


def test_an_answer_that_stays_away_leaves_the_outcome_open_and_says_so(proxy: Proxy) -> None:
    store = prepared(RedisStore(proxy.url, clock=clock))
    proxy.cuts = 2
    with pytest.raises(
        StoreError, match=r"connection was lost\). Whether the change was made is not known: load the run"
    ):
        store.append(Append(branch_id="b1", seq=1, entries=(note("x"),), claim=MINE))
    assert bodies(store) == ["x"]
    proxy.cuts, proxy.where = 2, "before"
    with pytest.raises(StoreError, match="is not known"):
        store.append(Append(branch_id="b1", seq=2, entries=(note("y"),), claim=MINE))
    assert bodies(store) == ["x"]
    proxy.cuts = 2
    with pytest.raises(StoreError) as refused:
        store.branches()
    assert "not known" not in str(refused.value)
    store.close()


def test_what_others_wrote_before_the_repetition_is_still_to_be_read(proxy: Proxy, servers: Any) -> None:
    """The answer was lost, and somebody journals before the call is repeated: the writer has not seen that entry."""
    store = prepared(RedisStore(proxy.url, clock=clock))
    other = RedisStore(f"redis://127.0.0.1:{proxy.server}/0", clock=clock)
    send = store._link._eval

    def late(*call: Any) -> Any:
        answer = send(*call)
        store._link._eval = send  # type: ignore[method-assign]
        other.append(Append(branch_id="b1", seq=2, claim=MINE, entries=(note("other"),)))
        del answer
        raise redis.ConnectionError

    store._link._eval = late  # type: ignore[method-assign]
    after = store.append(Append(branch_id="b1", seq=1, entries=(note("mine"),), claim=MINE))
    assert after.seq == 2 and bodies(store) == ["mine", "other"]
    with pytest.raises(Behind):
        store.append(Append(branch_id="b1", seq=after.seq, entries=(note("next"),), claim=MINE))
    store.close()
    other.close()


def test_a_server_that_does_not_answer_in_time(servers: Callable[..., RedisServer]) -> None:
    server = servers()
    store = prepared(RedisStore(server.url(), clock=clock, timeout=0.2))
    server.pause()
    with pytest.raises(StoreError, match=r"did not answer in time\. Whether the change was made is not known"):
        store.append(Append(branch_id="b1", seq=1, entries=(note("x"),), claim=MINE))
    server.go_on()
    patient = RedisStore(server.url(), clock=clock, timeout=30.0)
    patient.branches()  # what came before this is done by now
    assert bodies(patient) in ([], ["x"])
    store.close()
    patient.close()


def test_an_answer_that_an_interrupt_left_in_the_connection_is_not_taken_for_another(url: str) -> None:
    client = redis.Redis.from_url(url, single_connection_client=True)
    store = prepared(RedisStore(client=client, clock=clock))
    client.connection.send_command("ECHO", "the answer to something else")
    assert store.append(Append(branch_id="b1", seq=1, entries=(note("x"),), claim=MINE)).seq == 2
    client.connection.send_command("LRANGE", "nothing", 0, -1)
    assert bodies(store) == ["x"]
    client.close()


def test_scripts_that_the_server_forgot_are_sent_again(store: RedisStore, admin: redis.Redis) -> None:
    begin(store, take="me")
    admin.script_flush()
    assert store.append(Append(branch_id="b1", seq=1, entries=(note("x"),), claim=MINE)).seq == 2
    admin.script_flush()
    assert bodies(store) == ["x"]


def test_a_store_goes_on_after_a_restart_of_the_server(servers: Callable[..., RedisServer]) -> None:
    server = servers()
    store = prepared(RedisStore(server.url(), clock=clock))
    server.kill()
    server.start()
    assert store.append(Append(branch_id="b1", seq=1, entries=(note("x"),), claim=MINE)).seq == 2
    store.close()


# Races


def _race(store: RedisStore, name: str, gate: threading.Barrier) -> str:
    gate.wait(PATIENCE)
    try:
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note(name),)))
    except Exception as error:
        return type(error).__name__
    return "won"


def _racers(store: RedisStore, name: str, count: int) -> list[str]:
    gate, found = threading.Barrier(count), []
    threads = [
        threading.Thread(target=lambda n=n: found.append(_race(store, f"{name}{n}", gate))) for n in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return sorted(found)


def test_of_32_threads_one_wins(store: RedisStore) -> None:
    begin(store)
    assert _racers(store, "t", 32) == ["Behind"] * 31 + ["won"]
    assert len(bodies(store)) == 1


def program(text: str, *args: str) -> subprocess.Popen[str]:
    """A program of its own that can use what is in here."""
    code = f"import sys, os\nfrom test_redis_store import *\nfrom test_redis_store import _racers\n{text}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(phronomy.__file__).parents[1]), str(HERE)])}
    command = [sys.executable, "-W", "error", "-c", code, *args]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.sweep
def test_of_32_threads_in_4_processes_one_wins(store: RedisStore, url: str) -> None:
    begin(store)
    text = """
store = RedisStore(sys.argv[1], clock=clock)
store.branches()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(_racers(store, sys.argv[2], 8)))
"""
    processes = [program(text, url, f"p{number}-") for number in range(4)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    assert sorted(itertools.chain(*found)) == ["Behind"] * 31 + ["won"]
    assert len(bodies(store)) == 1


def test_of_many_that_take_an_expired_claim_over_one_has_it(url: str) -> None:
    now = [1000.0]
    store = RedisStore(url, clock=lambda: now[0], lease=10.0)
    begin(store, take="w0")
    now[0] = 1011.0
    gate, found = threading.Barrier(16), []

    def take(name: str) -> None:
        gate.wait(PATIENCE)
        with suppress(Behind):
            found.append(store.append(Append(branch_id="b1", seq=1, entries=(note(name),), take=name)))

    threads = [threading.Thread(target=take, args=(f"w{n}",)) for n in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    [after] = found
    assert after.fence == 2 and [after.owner] == bodies(store)
    with pytest.raises(LeaseLost):
        store.append(Append(branch_id="b1", seq=2, claim=Claim(branch_id="b1", run_id="b1", owner="w0", fence=1)))
    store.close()


def test_a_store_can_be_used_on_both_sides_of_a_fork(url: str) -> None:
    text = """
store = RedisStore(sys.argv[1], clock=clock)
begin(store)
pid = os.fork()
for seq in range(20):
    begin(store, f"{'parent' if pid else 'child'}{seq}")
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(len(store.branches()))
"""
    process = program(text, url)
    assert process.communicate(timeout=PATIENCE)[0] == "41\n" and process.returncode == 0


# Tenants, names and numbers


HOSTILE = ["", "a", "b", "a}:b", "a:b", "{a}", "a}", "}", ":", "*", "a b", "%7D", "é", "A", "a}:l:b1", "tenant/../a"]


def test_tenants_of_any_name_see_their_own_and_nothing_else(store: RedisStore, admin: redis.Redis) -> None:
    stores = {name: store.for_tenant(name) for name in HOSTILE}
    for name, each in stores.items():
        begin(each, thread="t", exclusive=True, opened=(asked("p", label=name, agent="b"),), audit=(told(1.0),))
        each.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note(name),)))
    for name, each in stores.items():
        assert bodies(each) == [name]
        assert [one.label for one in each.pending_rows()] == [name]
        assert len(each.branches()) == len(each.select_audit(AuditFilter())) == 1
    roots = {each._root for each in stores.values()}
    assert len(roots) == len(HOSTILE)
    slots: dict[bytes, set[int]] = {root: set() for root in roots}
    for key in admin.keys("*"):
        owners = [root for root in roots if key.startswith(root)]
        if key != b"{phronomy}:version":
            assert len(owners) == 1, key
            slots[owners[0]].add(key_slot(key))
    assert all(len(found) == 1 for found in slots.values())
    stores["a}:b"].remove({"b1": 2}, {})
    assert [len(stores[name].branches()) for name in ("a}:b", "a", "b", "")] == [0, 1, 1, 1]


names = st.text(st.sampled_from("a}{:%é*"), max_size=5)


@given(st.tuples(names.filter(bool), names), st.tuples(names.filter(bool), names))
def test_no_two_tenants_share_the_beginning_of_a_key(one: tuple[str, str], two: tuple[str, str]) -> None:
    client = redis.Redis()
    first, second = (RedisStore(client=client, prefix=prefix, tenant=tenant)._root for prefix, tenant in (one, two))
    assert (first == second) == (one == two)
    assert first == second or not (first.startswith(second) or second.startswith(first))
    assert first.count(b"{") == first.count(b"}") == 1 and first.endswith(b"}:")


@pytest.mark.parametrize("id", ["b1:x", "}", "{b}", "*", "a\nb", "a\0b", "é\U0001f600", " ", "x" * 10_000])
def test_ids_and_texts_of_any_kind_are_kept_byte_for_byte(store: RedisStore, id: str) -> None:
    branch = Branch(id=id, run_id=id, thread_id=id, agent=id, label=id)
    wanted = asked(id, agent=id, tool_name=id, label=id, risk=id, body=id)
    first = Append(branch_id=id, seq=0, entries=(row(id, parent=id, label=id, body=id),), take=id, opened=(wanted,))
    store.create(branch, first, exclusive=True)
    found = store.lineage(checkpoint_id=id)
    assert found.entries == (Entry(path="", body=id, checkpoint_id=id, parent_id=id, label=id, branch_id=id, seq=1),)
    assert (found.branch.agent, found.branch.label, found.branch.owner) == (id, id, id)
    facets = dict.fromkeys(("run", "thread", "label", "tool", "risk", "agent"), id)
    [waiting] = store.select_pending(PendingFilter(facets=facets, pending_id=id))
    assert (waiting.body, waiting.pending_id, waiting.branch_id) == (id, id, id)
    assert [one.body for one in store.select_checkpoints(CheckpointFilter(label=id))] == [id]
    claim = Claim(branch_id=id, run_id=id, owner=id, fence=1)
    store.append(Append(branch_id=id, seq=1, claim=claim, release=True, closed=(id,)))
    store.remove({id: 1}, {})
    assert store.branches() == store.pending_rows() == []


def test_text_that_is_no_text_is_refused_and_never_found(store: RedisStore) -> None:
    begin(store)
    with pytest.raises(StoreError, match="lone surrogate"):
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("\ud800"),)))
    with pytest.raises(CheckpointNotFound):
        store.lineage(branch_id="\ud800")
    assert store.select_branches(BranchFilter(thread_id="\ud800")) == []
    assert store.select_pending(PendingFilter(facets={"agent": "\ud800"})) == []
    assert store.lineage(branch_id="b1").branch.seq == 1


def test_times_come_back_as_they_were(store: RedisStore) -> None:
    times = [0.1 + 0.2, 1763735000.1234567, 5e-324, 1.7e308, -1.5, 1e16 + 2]
    begin(store, opened=tuple(asked(f"p{n}", at, expires_at=at) for n, at in enumerate(times)))
    assert [(one.requested_at, one.expires_at) for one in store.pending_rows()] == [(at, at) for at in sorted(times)]
    for at in times:
        [one] = store.select_pending(PendingFilter(since=at, until=at))
        assert one.requested_at == at
    with pytest.raises(StoreError, match="not nan"):
        begin(store, "b2", opened=(asked("p", float("nan")),))
    assert len(store.branches()) == 1


def test_numbers_beyond_what_a_double_holds(store: RedisStore, admin: redis.Redis) -> None:
    """Lua counts in doubles: the number of a checkpoint is put together outside of it."""
    admin.hset(store._root + b"m", mapping={"b": 2**40})
    for id in ("b1", "b2"):
        begin(store, id, entries=(row(f"{id}-0", label="x"), row(f"{id}-1", parent="p", label="x")))
    rows = store.select_checkpoints(CheckpointFilter())
    assert [one.n for one in rows] == [(2**40 + n) * SIZE + seq for n in (1, 2) for seq in (1, 2)]
    for wanted in (CheckpointFilter(), CheckpointFilter(label="x")):
        found, after = [], None
        while page := store.select_checkpoints(CheckpointFilter(label=wanted.label, after=after, limit=1)):
            found += page
            after = page[-1].n
        assert found == rows
    assert store.child_ids("p") == ["b1-1", "b2-1"]
    with pytest.raises(Behind):
        store.append(Append(branch_id="b1", seq=2**53 + 1, take="w", release=True, entries=(note("x"),)))


def test_a_log_that_is_full(store: RedisStore, admin: redis.Redis) -> None:
    begin(store)
    admin.hset(store._root + b"b:b1", "seq", SIZE - 1)
    with pytest.raises(StoreError, match=f"the log of branch b1 is full: it holds {SIZE - 1} entries"):
        store.append(Append(branch_id="b1", seq=SIZE - 1, take="w", release=True, entries=(note("x"),)))


# What is left, and what is asked of the server


def test_what_is_read_a_little_at_a_time_is_the_same(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)

    def answers() -> list[Any]:
        facets: list[dict[str, str]] = [{}, {"agent": "a"}, {"agent": "a", "risk": "high"}]
        pending = [
            PendingFilter(facets=given, newest=newest, expired_at=expired)
            for given, newest, expired in itertools.product(facets, (False, True), (None, 6.0))
        ]
        checkpoints = [CheckpointFilter(**each) for each in ({}, {"label": "l"}, {"agent": "x"}, {"agent": "none"})]
        branches = [{"ended_before": 5000.0}, {"parents": ("b1", "b2", "b3")}, {"unannounced": True}, {}]
        return [
            *([store.select_pending(wanted), store.count_pending(wanted)] for wanted in pending),
            *(store.select_checkpoints(wanted) for wanted in checkpoints),
            *(store.select_branches(BranchFilter(**each)) for each in branches),
            *(
                store.select_audit(AuditFilter(**each))
                for each in ({}, {"run_id": "b1"}, {"since": -3.0, "until": 1.0})
            ),
        ]

    whole = answers()
    assert all(whole[index] for index in range(len(whole)) if index != 15), (
        "only the agent that is not there has nothing"
    )
    monkeypatch.setattr(redis_store, "_BATCH", 2)
    monkeypatch.setattr(redis_store, "_LOOKS", 3)
    assert answers() == whole


def test_a_store_from_which_all_was_taken_holds_counters_the_trail_and_texts(
    store: RedisStore, admin: redis.Redis
) -> None:
    fill(store)
    read(store)
    store.announced("b0", 5)
    forks = {branch.id: branch.seq for branch in store.branches() if branch.parent_branch}
    rest = {branch.id: branch.seq for branch in store.branches() if not branch.parent_branch}
    with pytest.raises(Behind):
        store.remove(rest, {})
    apart = {f"f{n}": [Entry(path="", body="new", checkpoint_id=f"f{n}-0", branch_id=f"f{n}", seq=2)] for n in range(7)}
    store.remove(rest, apart)
    assert [entry.body for entry in store.lineage(branch_id="f3").entries] == ["new"]
    assert {branch.id: branch.parent_branch for branch in store.branches()} == dict.fromkeys(forks)
    store.remove(forks, {})
    for kind in ("k0", "k1"):
        for found in store.select_documents(kind):
            store.delete_document(kind, found.key) if found.expires_at is None else None
    store.clock = lambda: 2000.0
    store.expire_documents()
    left = {key.removeprefix(store._root).split(b":")[0] for key in admin.keys("*")} - {b"{phronomy}"}
    assert left == {b"m", b"A", b"as", b"ar", b"t"}
    assert len(admin.keys(store._root + b"t:*")) == 3, "each text once"
    assert set(admin.hkeys(store._root + b"m")) == {b"b", b"p", b"a", b"latest", b"back", b"ops"}
    assert len(store.select_audit(AuditFilter())) == 14
    read_back = [*store.branches(), *store.pending_rows(), *store.select_checkpoints(CheckpointFilter())]
    assert read_back == []


def test_only_these_commands_are_asked_of_the_server(servers: Callable[..., RedisServer]) -> None:
    """None of them walks through the keys."""
    server = servers()
    store = RedisStore(server.url(), clock=clock)
    fill(store)
    read(store)
    store.announced("b0", 5)
    store.remove({f"{kind}{n}": 5 if kind == "b" else 2 for n in range(7) for kind in "bf"}, {})
    with redis.Redis.from_url(server.url()) as admin:
        found = {name.removeprefix("cmdstat_").lower() for name in admin.info("commandstats")}
    assert found - {"hello", "client", "client|setinfo", "info", "ping", "select"} == {
        *("config", "eval", "evalsha", "get", "set"),
        *("del", "exists", "unlink"),
        *("hdel", "hexists", "hget", "hincrby", "hmget", "hset", "hvals"),
        *("lindex", "lrange", "rpush"),
        *("sadd", "smembers", "srem"),
        *(
            "zadd",
            "zcard",
            "zcount",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrem",
            "zrevrange",
            "zrevrangebyscore",
            "zscore",
        ),
    }
    store.close()


def test_a_page_deep_in_a_long_list_is_found_without_passing_over_the_rest(
    servers: Callable[..., RedisServer],
) -> None:
    """All were asked at one time, and the one that the page follows has been decided meanwhile."""
    server = servers(appendfsync="no")
    store = RedisStore(server.url(), clock=clock)
    begin(store, opened=tuple(asked(f"p{n}", tool_name=f"t{n % 3}") for n in range(6000)))
    every = store.pending_rows()
    assert len(every) == 6000
    last = every[4999]
    store.append(Append(branch_id="b1", seq=1, take="me", closed=(last.pending_id,)))
    with redis.Redis.from_url(server.url()) as admin:
        for newest, ids in ((False, range(5000, 5010)), (True, range(4998, 4988, -1))):
            admin.config_resetstat()
            wanted = PendingFilter(after=(last.requested_at, last.n), limit=10, newest=newest)
            page = store.select_pending(wanted)
            assert [one.pending_id for one in page] == [f"p{n}" for n in ids]
            stats = admin.info("commandstats")
            assert sum(stats[f"cmdstat_{name}"]["calls"] for name in ("zrange", "zcount")) < 30
            assert stats["cmdstat_evalsha"]["calls"] == 1
    assert store.count_pending(PendingFilter(facets={"tool": "t1", "agent": "a"})) == 1999
    store.close()
