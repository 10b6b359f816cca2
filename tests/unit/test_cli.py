"""The command line: forms of output, exit codes, and what a wrong call says. Run in this process, against a double."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from querator import errors
from querator.cli import main
from querator.cli.output import item_document, make_table, show_payload
from querator.cli.root import root
from querator.cli.stats import COLUMNS as STATS_COLUMNS
from querator.client_items import ReservedItem
from querator.durations import to_instant
from tests.unit.client_double import OK, ServerDouble, produced, serve_double


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerDouble]:
    """A server on a loop in another thread, to which QUERATOR_URL points."""
    ready: list[ServerDouble] = []
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serve_double() as server:
            ready.append(server)
            is_up.set()
            await asyncio.to_thread(is_over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(30)
    monkeypatch.setenv("QUERATOR_URL", ready[0].url)
    yield ready[0]
    is_over.set()
    thread.join()


def give_stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))


def reserved(*payloads: str) -> dict[str, Any]:
    deadline = "2030-01-01T00:00:00Z"
    items = [
        {"id": f"id{place}", "attempts": 1, "lease_deadline": deadline, "bytes": payload}
        for place, payload in enumerate(payloads)
    ]
    return {"queue_name": "mail", "partition": 2, "items": items}


@pytest.mark.parametrize("name", root.list_commands(None))  # type: ignore[arg-type]
def test_every_command_has_help_with_an_example(name: str) -> None:
    """`--help` of every command works, and shows a line to type."""
    if name == "bench":
        return
    done = CliRunner().invoke(root, [name, "--help"])
    assert done.exit_code == 0
    assert "Example" in done.output or name == "items"


def test_an_error_is_one_line_and_exit_code_1(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure writes one clear line to stderr and nothing to stdout."""
    double.script("queues.info", [errors.NoSuchQueue("mail")])
    assert main(["info", "mail"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: queue does not exist; no queue is named 'mail'\n"


def test_an_unreachable_server_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody listens the command says so when its time is over."""
    assert main(["--timeout", "50ms", "--url", "http://127.0.0.1:1", "list"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: server is unreachable; cannot connect to http://127.0.0.1:1")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["create"],
        ["create", "mail", "--lease-timeout", "soon"],
        ["create", "mail", "--logical-queues", "some"],
        ["produce", "mail"],
        ["produce", "mail", "x", "--file", "-"],
        ["produce", "mail", "x", "--at", "tomorrow"],
        ["produce", "mail", "x", "--delay", "1s", "--at", "2030-01-01T00:00:00Z"],
        ["retry", "mail", "id", "--delay", "1s", "--at", "2030-01-01T00:00:00Z"],
        ["update", "mail"],
        ["clear", "mail"],
        ["--timeout", "never", "list"],
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that cannot be meant says how the command is used, without asking any server."""
    give_stdin(monkeypatch, b"")
    assert main(arguments) == 2
    assert "Usage: querator" in capsys.readouterr().err


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends a command without a traceback."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("querator.cli.session.Session.run", interrupt)
    assert main(["list"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_global_options_stand_anywhere(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` means the same before and after the command's name."""
    double.on("queues.list", lambda _: {"items": [{"queue_name": "mail", "requested_partitions": 4}]})
    outputs = []
    for arguments in (["--json", "list"], ["list", "--json"]):
        assert main(arguments) == 0
        outputs.append(json.loads(capsys.readouterr().out))
    assert outputs == [[{"queue_name": "mail", "requested_partitions": 4}]] * 2


def test_piped_tables_are_tab_separated(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """Away from a terminal a table is plain lines with tabs, the first of which names the columns."""
    double.on(
        "queues.list",
        lambda _: {"items": [{"queue_name": "mail", "requested_partitions": 4, "lease_timeout": "1m"}]},
    )
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "queue\tpartitions\tlease\texpire\tattempts\tdead queue\tpaused",
        "mail\t4\t1m\tnever\tno limit\t-\t-",
    ]


def test_create_and_update_send_what_was_given(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """Options become the fields of the wire, and what was not given is not sent."""
    double.on("queues.create", lambda _: OK)
    double.on("queues.update", lambda _: OK)
    settings = ["--partitions", "4", "--lease-timeout", "90s", "--retry-base", "1s", "--logical-queues", "2"]
    assert main(["create", "mail", *settings]) == 0
    assert main(["update", "mail", "--max-attempts", "0", "--dead-queue", ""]) == 0
    assert double.asked["queues.create"] == [
        {
            "queue_name": "mail",
            "requested_partitions": 4,
            "lease_timeout": "1m30s",
            "retry_policy": {"base": "1s"},
            "logical_queues": "2",
        }
    ]
    assert double.asked["queues.update"] == [{"queue_name": "mail", "max_attempts": 0, "dead_queue": ""}]
    assert capsys.readouterr().out == "queue 'mail' created\nqueue 'mail' updated\n"


def test_produce_from_arguments(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """Each argument is an item with the attributes of the options."""
    double.on("queue.produce", produced)
    assert main(["produce", "mail", "hello", "world", "--kind", "note", "--at", "2030-01-01T00:00:00Z"]) == 0
    (asked,) = double.asked["queue.produce"]
    assert asked["items"] == [
        {"bytes": "aGVsbG8=", "kind": "note", "enqueue_at": "2030-01-01T00:00:00Z"},
        {"bytes": "d29ybGQ=", "kind": "note", "enqueue_at": "2030-01-01T00:00:00Z"},
    ]
    assert capsys.readouterr().out == "produced 2 items into 'mail'\n"


def test_produce_from_a_file_in_batches(
    double: ServerDouble, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line is an item, in order, in requests of the batch's size; line ends are no payload."""
    double.on("queue.produce", produced)
    source = tmp_path / "items.txt"
    source.write_bytes(b"a\nb\r\n\nd\ne")
    assert main(["produce", "mail", "--file", str(source), "--batch", "2", "--json"]) == 0
    assert [asked["items"] for asked in double.asked["queue.produce"]] == [
        [{"bytes": "YQ=="}, {"bytes": "Yg=="}],
        [{}, {"bytes": "ZA=="}],
        [{"bytes": "ZQ=="}],
    ]
    assert json.loads(capsys.readouterr().out) == {"queue_name": "mail", "produced": 5}


def test_produce_of_json_lines(
    double: ServerDouble,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With `--format json` a line is an item of the API; a wrong one is named by its number, with what is stored."""
    double.on("queue.produce", produced)
    source = tmp_path / "items.jsonl"
    source.write_text('{"utf8": "a", "kind": "k"}\n{"uft8": "typo"}\n')
    assert main(["produce", "mail", "--file", str(source), "--format", "json", "--batch", "1"]) == 1
    assert double.asked["queue.produce"][0]["items"] == [{"utf8": "a", "kind": "k"}]
    err = capsys.readouterr().err
    assert "line 2 is not an item" in err
    assert "1 items were stored before" in err


def test_reserve_writes_and_completes(double: ServerDouble, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """`--complete` writes the payloads as they are, then completes them; the loop ends when nothing more is ready."""
    double.script("queue.reserve", [reserved("aGVsbG8=", "/w=="), errors.TimedOut("nothing")])
    double.on("queue.complete", lambda _: OK)
    assert main(["reserve", "mail", "--count", "10", "--complete"]) == 0
    assert capfdbinary.readouterr().out == b"hello\n\xff\n"
    assert double.asked["queue.complete"][0]["ids"] == ["id0", "id1"]
    assert double.asked["queue.complete"][0]["partition"] == 2


def test_reserve_writes_json_lines_that_complete_reads(
    double: ServerDouble, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line tells id, partition and payload, as text where it is one; `complete -` takes such lines."""
    double.script("queue.reserve", [reserved("aGVsbG8=", "/w==")])
    double.on("queue.complete", lambda _: OK)
    assert main(["reserve", "mail", "--count", "2", "--json"]) == 0
    out = capsys.readouterr().out
    first, second = map(json.loads, out.splitlines())
    assert (first["id"], first["partition"], first["utf8"]) == ("id0", 2, "hello")
    assert second["bytes"] == "/w=="
    give_stdin(monkeypatch, out.encode())
    assert main(["complete", "mail", "-"]) == 0
    asked = double.asked["queue.complete"][0]
    assert (asked["partition"], asked["ids"]) == (2, ["id0", "id1"])


def test_an_empty_queue_is_no_failure(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A reserve that finds nothing writes nothing but a note beside the results."""
    double.script("queue.reserve", [errors.TimedOut("nothing")])
    assert main(["reserve", "mail", "--wait", "20ms"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "no item of 'mail' was ready within 20ms" in err


def test_retry_and_renew_say_what_they_did(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """Retry sends time or death, renew reports the new deadline."""
    double.on("queue.retry", lambda _: OK)
    double.on("queue.renew", lambda _: {"items": [{"id": "a", "lease_deadline": "2030-01-01T00:00:00Z"}]})
    assert main(["retry", "mail", "a", "b", "--partition", "1", "--dead"]) == 0
    assert main(["renew", "mail", "a", "--lease-timeout", "5m", "--json"]) == 0
    assert double.asked["queue.retry"] == [
        {"queue_name": "mail", "partition": 1, "items": [{"id": "a", "dead": True}, {"id": "b", "dead": True}]}
    ]
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "gave back 2 items"
    assert json.loads(out[1]) == {"renewed": 1, "lease_deadline": "2030-01-01T00:00:00Z"}


def test_stats_show_partitions_in_order(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """The partitions of all logical queues are one table; zero ages are shown as such."""
    partitions = [{"partition": 1, "total": 5, "total_leased": 2, "state": "available"}, {}]
    double.on("queue.stats", lambda _: {"queue_name": "mail", "logicalQueues": [{"partitions": partitions}]})
    assert main(["stats", "mail"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["0", "-", "0", "0", "0", "0s", "0s", "0"],
        ["1", "available", "3", "2", "0", "0s", "0s", "0"],
    ]


def test_items_travel_from_list_to_import(
    double: ServerDouble, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `items list --json` writes, `items import` reads; ids and leases are left behind."""
    item = {"id": "a", "is_leased": True, "lease_deadline": "2030-01-01T00:00:00Z", "payload": "aGVsbG8=", "kind": "k"}
    double.on("storage/items.list", lambda _: {"items": [item]})
    double.on("storage/items.import", lambda body: {"items": body["items"]})
    double.on("storage/items.delete", lambda _: OK)
    assert main(["items", "list", "mail", "--json"]) == 0
    source = tmp_path / "items.jsonl"
    source.write_text(capsys.readouterr().out)
    assert main(["items", "import", "mail", str(source), "--partition", "1"]) == 0
    assert double.asked["storage/items.import"] == [
        {"queue_name": "mail", "partition": 1, "items": [{"payload": "aGVsbG8=", "kind": "k"}]}
    ]
    assert main(["items", "delete", "mail", "a"]) == 0
    assert double.asked["storage/items.delete"] == [{"queue_name": "mail", "ids": ["a"]}]


@pytest.mark.parametrize(("status", "code"), [("pass", 0), ("warn", 0), ("fail", 1)])
def test_health_is_in_the_exit_code(
    double: ServerDouble, capsys: pytest.CaptureFixture[str], status: str, code: int
) -> None:
    """A server that is not well makes the command fail, with what is wrong."""
    checks = {"storage:local-0": [{"status": status, "output": "disk is full"}]}
    double.on("health", lambda _: {"status": status, "checks": checks})
    assert main(["health"]) == code
    assert capsys.readouterr().out.splitlines() == [f"status\t{status}", f"storage:local-0\t{status}: disk is full"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shell gets a script that asks `querator` for completions."""
    assert main(["completion", shell]) == 0
    assert "_QUERATOR_COMPLETE" in capsys.readouterr().out


def test_payloads_cannot_break_a_table() -> None:
    """In a table a payload is one line without control characters, cut where it is long, and never markup."""
    assert show_payload(b"a\x1b[31m\nb") == "a [31m b"
    assert show_payload(b"\xff\x00") == "<2 bytes>"
    assert show_payload(b"x" * 100) == "x" * 60 + "…"
    cell = make_table(["payload"], [["[bold]x[/bold]"]]).columns[0]._cells[0]
    assert str(cell) == "[bold]x[/bold]"


def test_a_table_fits_a_usual_terminal() -> None:
    """The widest table with counts in it keeps to 80 columns, so that no line is folded."""
    row = (1000, "available", 10_000_000, 100_000, 100_000, "59m59.9s", "59m59.9s", 0)
    console = Console(width=80, file=io.StringIO())
    console.print(make_table(STATS_COLUMNS, [row]))
    file = console.file
    assert isinstance(file, io.StringIO)
    assert "10,000,000" in file.getvalue()
    assert "59m59.9s" in file.getvalue()


def test_item_documents_keep_bytes_that_are_no_text() -> None:
    """A payload is shown as text if it is UTF-8, else in base64 as on the wire."""
    deadline = to_instant(0)
    assert item_document(ReservedItem(id="a", lease_deadline=deadline, payload=b"hi"))["utf8"] == "hi"
    assert item_document(ReservedItem(id="a", lease_deadline=deadline, payload=b"\xff"))["bytes"] == "/w=="


def test_totals_that_are_not_whole_are_told(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """What some instances did not tell is a note on stderr that names them; the rest is shown all the same."""
    partial = {"partial": True, "missing": ["i1", "i2"]}
    double.on("queue.stats", lambda _: {"queue_name": "mail", "logicalQueues": [], **partial})
    double.on("queues.info", lambda _: {"queue_name": "mail", **partial})
    for command in ("stats", "info"):
        assert main([command, "mail"]) == 0
        out, err = capsys.readouterr()
        assert out
        assert err == "what is shown is not all; these instances did not answer: i1, i2\n"


def test_the_cluster_is_shown(double: ServerDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """Instances, logical queues and owners come as columns, and as the answer itself with `--json`."""
    instance = {"id": "i1", "host": "h", "addresses": ["h:1"], "backends": ["pg"], "version": "1", "leader": True}
    logical_queue = {"queue_name": "mail", "number": 1, "instance": "i1", "epoch": 3, "partitions": [0, 2]}
    info = {"instances": [instance], "leader": "i1", "logical_queues": [logical_queue]}
    double.on("cluster.info", lambda _: info)
    partitions = [{"partition": 1, "instance": "i1", "address": "h:1", "logical_queue": 1, "epoch": 3}, {}]
    double.on("cluster.route", lambda _: {"queue_name": "mail", "partitions": partitions, "addresses": ["h:1"]})
    assert main(["cluster", "info"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split("\t")[:4] == ["i1", "h", "h:1", "pg"]
    assert main(["cluster", "info", "--queues"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split("\t") == ["mail", "1", "i1", "3", "0 2"]
    assert main(["cluster", "info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == info
    assert main(["cluster", "route", "mail"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["1\ti1\th:1\t1\t3", "0\t-\t-\t0\t0"]
