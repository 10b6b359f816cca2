"""Coordination through an etcd that is away, comes back, is silent, has several addresses, users and certificates."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bench.etcd_server import Etcd
from bench.ports import lasting_port
from cluster.coordinator import CoordinationError, Snapshot
from cluster.etcd import EtcdCoordinator
from cluster.etcd_options import EtcdOptions
from tests.conformance.coordinators import PATIENCE_S, EtcdRig, etcd_in, insist, put, soon, watching

BRIEF_MS = 500  # a time-out for calls that are meant to fail


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Etcd]:
    """One of the test's own, not started."""
    server = etcd_in(tmp_path / "etcd")
    yield server
    server.kill()


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_everything_goes_on_after_a_restart(server: Etcd, how: str) -> None:
    """Calls, watches and leases find the way back: a watch with a fresh snapshot, a lease with its keys."""
    server.start()
    rig = EtcdRig(server)
    coordinator, other = await rig.open(), await rig.open()
    lease = await coordinator.grant(60_000)
    await coordinator.transact(expected={}, puts={"held": b"1"}, lease=lease)
    await put(coordinator, a=b"1")
    async with watching(coordinator) as watched:
        await put(other, a=b"2")
        await watched.until(lambda state: state["a"] == b"2")
        for value in (b"3", b"4"):
            getattr(server, how)()
            server.start()
            await insist(other, a=value)
            while watched.values()["a"] != value:
                await watched.next()
        assert watched.snapshots > 1
        await put(other, b=b"1")
        await watched.until(lambda state: state.keys() == {"a", "b", "held"})
    assert not lease.lost.is_set()
    await lease.revoke()
    assert [entry.key for entry in await other.list("")] == ["a", "b"]
    await rig.close()


async def test_what_changed_while_a_watch_was_cut_off_is_in_its_snapshot(server: Etcd) -> None:
    """Also if the history of it was dropped meanwhile."""
    server.start()
    rig = EtcdRig(server)
    coordinator, other = await rig.open(), await rig.open()
    await put(coordinator, a=b"1", b=b"1")
    async with watching(coordinator) as watched:
        server.kill()
        server.start()
        await insist(other, a=b"2")
        await other.transact(expected={}, puts={}, deletes=["b"])
        await rig.forget()
        await watched.until(lambda state: state == {"a": b"2"})
        assert watched.changes == []
    await rig.close()


async def test_an_etcd_that_is_away_is_an_error_and_not_a_wait(server: Etcd) -> None:
    """Every call fails in its time and says whom it did not reach; a watch waits, and begins when etcd is there."""
    rig = EtcdRig(server, request_timeout_ms=BRIEF_MS)
    coordinator = await rig.open()
    watch = coordinator.watch("")
    for call in (
        coordinator.get("a"),
        coordinator.list(""),
        coordinator.grant(60_000),
        coordinator.transact(expected={}, puts={"a": b"1"}),
    ):
        with pytest.raises(CoordinationError, match=f"etcd cannot be reached at {server.endpoint}"):
            await soon(call)
    server.start()
    first = await soon(anext(watch))
    assert isinstance(first, Snapshot)
    assert first.entries == ()
    await watch.aclose()
    await rig.close()


async def test_a_silent_etcd_is_an_error_and_a_lease_is_given_up_before_it_is_gone(server: Etcd) -> None:
    """While etcd is stopped, calls fail in their time; the holder gives up while its key is still there."""
    server.start()
    rig = EtcdRig(server, request_timeout_ms=BRIEF_MS)
    coordinator = await rig.open()
    lease = await coordinator.grant(10_000)
    await coordinator.transact(expected={}, puts={"held": b"1"}, lease=lease)
    patient = await EtcdRig(server).open()
    patient._prefix = coordinator._prefix
    server.pause()
    with pytest.raises(CoordinationError):
        await soon(coordinator.get("held"))
    with pytest.raises(CoordinationError):
        await soon(coordinator.transact(expected={}, puts={"a": b"1"}))
    await soon(lease.lost.wait())
    assert lease.remaining_ms() == 0
    server.resume()
    assert await soon(patient.get("held")) is not None
    await patient.close()
    await rig.close()


async def test_a_watch_on_a_silent_etcd_is_noticed(server: Etcd) -> None:
    """A member that is stopped and stays connected is given up by its silence; another one could be asked then."""
    server.start()
    rig = EtcdRig(server, ping_interval_ms=1000)
    coordinator, other = await rig.open(), await rig.open()
    async with watching(coordinator) as watched:
        following = asyncio.ensure_future(watched.until(lambda state: state == {"a": b"1"}))
        await asyncio.sleep(0)
        with capture_logs() as logged:
            server.pause()
            async with asyncio.timeout(PATIENCE_S):
                while not any(each["event"] == "watch was interrupted" for each in logged):
                    await asyncio.sleep(0.05)
            server.resume()
        await insist(other, a=b"1")
        await soon(following)
        assert watched.snapshots > 1
    await rig.close()


async def test_of_several_endpoints_one_that_answers_is_enough(server: Etcd) -> None:
    """Members that are away are passed over, at the start and later."""
    server.start()
    endpoints = (f"127.0.0.1:{lasting_port()}", server.endpoint, f"127.0.0.1:{lasting_port()}")
    rig = EtcdRig(server, endpoints=endpoints)
    coordinator = await rig.open()
    await put(coordinator, a=b"1")
    async with watching(coordinator) as watched:
        server.kill()
        server.start()
        await insist(coordinator, a=b"2")
        await watched.until(lambda state: state == {"a": b"2"})
    await rig.close()


async def test_prefixes_keep_clusters_apart(server: Etcd) -> None:
    """Two clusters on one etcd do not see each other, even if one's prefix begins with the other's."""
    server.start()
    one = await EtcdCoordinator.open(EtcdOptions(endpoints=(server.endpoint,), prefix="/a"))
    two = await EtcdCoordinator.open(EtcdOptions(endpoints=(server.endpoint,), prefix="/ab/"))
    await put(one, key=b"1")
    await put(two, key=b"2")
    assert [entry.value for entry in await one.list("")] == [b"1"]
    assert [entry.value for entry in await two.list("")] == [b"2"]
    await one.close()
    await two.close()


def enable_users(server: Etcd) -> None:
    """`root` and `querator` with the password `secret`; the latter may use /cluster/ only."""
    server.call("auth/user/add", {"name": "root", "password": "secret"})
    server.call("auth/role/add", {"name": "root"})
    server.call("auth/user/grant", {"user": "root", "role": "root"})
    server.call("auth/user/add", {"name": "querator", "password": "secret"})
    server.call("auth/role/add", {"name": "cluster"})
    key, end = base64.b64encode(b"/cluster/").decode(), base64.b64encode(b"/cluster0").decode()
    permission = {"permType": "READWRITE", "key": key, "range_end": end}
    server.call("auth/role/grant", {"name": "cluster", "perm": permission})
    server.call("auth/user/grant", {"user": "querator", "role": "cluster"})
    server.call("auth/enable", {})


async def test_users_and_passwords(server: Etcd) -> None:
    """Who has a password gets in, also after a restart that made its token worthless; nobody else does."""
    server.start()
    enable_users(server)
    rig = EtcdRig(server, prefix="/cluster/", user="querator", password="secret")
    coordinator = await rig.open()
    await put(coordinator, a=b"1")
    lease = await coordinator.grant(60_000)
    await coordinator.transact(expected={}, puts={"held": b"1"}, lease=lease)
    async with watching(coordinator) as watched:
        server.stop()
        server.start()
        await insist(coordinator, a=b"2")
        await watched.until(lambda state: state["a"] == b"2")
    await lease.revoke()
    for options in ({"user": "querator", "password": "wrong"}, {}, {"prefix": "/else/"}):
        stranger = EtcdRig(server, **({"prefix": "/cluster/", "user": "querator", "password": "secret"} | options))
        if not options:
            stranger = EtcdRig(server, prefix="/cluster/")
        with pytest.raises(CoordinationError, match="etcd: etcdserver: "):
            await (await stranger.open()).get("a")
        await stranger.close()
    await rig.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server and a client that it signed, and an authority that nobody knows."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed; apt-get install openssl")
    folder = tmp_path_factory.mktemp("certificates")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "stranger"):
        openssl("req", "-x509", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
        openssl(*sign, "-out", f"{name}.crt", "-extfile", "names")
    return folder


async def test_certificates(tmp_path: Path, certificates: Path) -> None:
    """Both sides show theirs: who has none, or meets a server of an authority it does not know, gets nowhere."""
    server = etcd_in(tmp_path / "etcd", tls=certificates)
    try:
        server.start()
        mine = {"cert_file": str(certificates / "client.crt"), "key_file": str(certificates / "client.key")}
        ca_file = str(certificates / "ca.crt")
        rig = EtcdRig(server, ca_file=ca_file, **mine)
        coordinator = await rig.open()
        await put(coordinator, a=b"1")
        async with watching(coordinator) as watched:
            await put(coordinator, a=b"2")
            await watched.until(lambda state: state == {"a": b"2"})
        await rig.close()
        unknown = {**mine, "ca_file": str(certificates / "stranger.crt")}
        for options in (unknown, {"ca_file": ca_file}, {}):
            stranger = EtcdRig(server, request_timeout_ms=BRIEF_MS, **options)
            with pytest.raises(CoordinationError):
                await (await stranger.open()).get("a")
            await stranger.close()
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endpoints": ()}, "endpoints must name at least one"),
        ({"endpoints": ("localhost",)}, "endpoints must be HOST:PORT, and 'localhost' is not"),
        ({"endpoints": ("a:1", "https://b:1")}, "all be reached with TLS or all without, see 'https://b:1'"),
        ({"endpoints": ("https://a:1", "http://b:1")}, "see 'http://b:1'"),
        ({"cert_file": "client.crt"}, "cert_file and key_file belong together"),
        ({"user": "querator"}, "user and password belong together"),
        ({"ca_file": "/nowhere/ca.crt"}, "ca_file cannot be read: /nowhere/ca.crt: No such file"),
        ({"request_timeout_ms": 0}, "request_timeout_ms must be positive"),
    ],
)
async def test_options_that_cannot_work_are_named(options: dict[str, object], says: str) -> None:
    """Before anything is tried."""
    with pytest.raises(CoordinationError, match=says):
        await EtcdCoordinator.open(EtcdOptions(**({"endpoints": ("127.0.0.1:2379",)} | options)))  # type: ignore[arg-type]
