"""Devices behind a connection: they compute as they do here, and whatever a server does, its client lives on."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import data
from tests.oracle.tiny_model import TinyModel
from tests.plugins.rpc_toolkit import ROOT, FalseServer, Server, polite
from tests.plugins.toolkit import python
from whispyx.errors import ParamsError
from whispyx.plugins import rpc
from whispyx.plugins.endpoints import check_endpoint

SECONDS = 150.0
"""A child that takes longer hangs, and that is what must not happen."""
SHORT = {"WHISPYX_RPC_TIMEOUT": "3"}
BOUND_S = 12.0
"""For what must be over after these seconds, on a machine where other things run, too."""
FROZEN_S = 10

PREAMBLE = """
import json, os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from tests.plugins.rpc_toolkit import FalseServer, Relay, Server, polite
plugins, wav, model = sys.argv[2:5]
import whispyx
from whispyx.errors import DeviceError, WhispyxError
from whispyx.plugins import rpc

def timed(function, *arguments, **keywords):
    # what it raises, in a word and a sentence, and how long that took
    start = time.monotonic()
    try:
        result = function(*arguments, **keywords)
    except WhispyxError as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["", getattr(result, "text", ""), time.monotonic() - start]

def at_call(n, action):
    # an abort callback that never aborts, but does something when it is asked for the n-th time
    calls = [0]
    def abort():
        calls[0] += 1
        if calls[0] == n:
            action()
        return False
    return abort
"""


@pytest.fixture(scope="module")
def plugins(built: Callable[[str], Path]) -> Path:
    return built("rpc")


@pytest.fixture(scope="module")
def wav() -> str:
    return str(data.or_skip(data.jfk_wav))


@pytest.fixture(scope="module")
def child(plugins: Path, wav: str) -> Callable[..., Any]:
    """Run code in a child that has a server's class at hand; return what it prints."""
    model = str(data.or_skip(data.model_file, "tiny.en"))

    def run(code: str, *arguments: str, seconds: float = SECONDS, **env: str) -> Any:
        environment = {"WHISPYX_BACKEND_PATH": str(plugins), **env}
        done = python(
            PREAMBLE + code, str(ROOT), str(plugins), wav, model, *arguments, env=environment, seconds=seconds
        )
        if done.returncode < 0:
            pytest.fail(f"the child died of {signal.Signals(-done.returncode).name}\n{done.stdout}{done.stderr}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_transcription_through_a_server_says_what_the_cpu_says(child: Callable[..., Any]) -> None:
    found = child("""
with Server(plugins) as server:
    os.environ["WHISPYX_RPC_SERVERS"] = server.endpoint
    answers = {}
    for backend in ("rpc:0", "cpu"):
        for flash in (True, False):
            with whispyx.Model(model, backend=backend, flash_attn=flash) as m:
                answers[f"{backend} {flash}"] = [
                    m.transcribe(wav).text, m.transcribe(wav, beam_size=5).text, m.transcribe(wav, audio_ctx=768).text,
                    m.devices,
                ]
    print(json.dumps(answers))
""")
    for flash in (True, False):
        *theirs, devices = found[f"rpc:0 {flash}"]
        *ours, _ = found[f"cpu {flash}"]
        assert theirs == ours
        assert devices == ["RPC0", "CPU"]
    assert "ask what you can do for your country" in found["rpc:0 True"][0]


def test_jobs_of_several_threads_share_one_connection(child: Callable[..., Any]) -> None:
    texts = child("""
with Server(plugins, threads=1) as server:
    (name,) = rpc.add_server(server.endpoint)
    m = whispyx.Model(model, backend=name, max_jobs=3, n_threads=1)
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(m.transcribe(wav).text)) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(json.dumps(texts))
""")
    assert len(texts) == 3
    assert len(set(texts)) == 1
    assert "ask what you can do for your country" in texts[0]


def test_two_servers_are_two_devices_of_one_plugin(child: Callable[..., Any]) -> None:
    found = child("""
from whispyx._core.devices import devices
with Server(plugins) as one, Server(plugins) as two:
    os.environ["WHISPYX_RPC_SERVERS"] = f"{one.endpoint}, {two.endpoint}"
    with whispyx.Model(model, backend="rpc:1") as m:
        used = m.devices
    far = [d for d in devices() if d.backend == "rpc"]
    again = rpc.add_server(one.endpoint.upper())
    out_of_range = timed(whispyx.Model, model, backend="rpc:2")
    print(json.dumps([used, [[d.name, d.index, d.kind, d.description == e.endpoint, d.memory()[1] > 0]
                             for d, e in zip(far, (one, two))], again, out_of_range]))
""")
    used, far, again, out_of_range = found
    assert used == ["RPC1", "CPU"]
    assert far == [["RPC0", 0, "GPU", True, True], ["RPC1", 1, "GPU", True, True]]
    assert again == ["RPC0"]
    assert out_of_range[0] == "BackendNotFoundError"


def test_a_server_that_dies_in_the_middle_is_an_error_and_one_that_is_back_is_used_again(
    child: Callable[..., Any],
) -> None:
    found = child("""
with Server(plugins) as server:
    rpc.add_server(server.endpoint)
    m = whispyx.Model(model, backend="rpc")
    found = [timed(m.transcribe, wav)]
    for n in (1, 2, 3):     # it is asked every few hundredths of a second, so a fast machine does not get far
        found.append(timed(m.transcribe, wav, abort=at_call(n, server.kill)))
        found.append(timed(m.transcribe, wav))
        server = Server(plugins, port=server.port)
        found.append(timed(m.transcribe, wav))
    server.kill()
    server = Server(plugins, port=server.port)
    found.append(timed(m.transcribe, wav))     # nobody saw that it was away
    m.close()
    server.kill()
    print(json.dumps([server.endpoint, found]))
""")
    endpoint, answers = found
    text = answers[0][1]
    assert "ask what you can do for your country" in text
    for lost, away, back in zip(answers[1:-1:3], answers[2:-1:3], answers[3:-1:3], strict=True):
        for kind, message, seconds in (lost, away):
            assert kind == "DeviceError"
            assert endpoint in message
            assert seconds < BOUND_S
        assert back[:2] == ["", text]
    assert answers[-1][:2] == ["", text]


def test_a_server_that_freezes_is_an_error_after_the_time_that_was_set(child: Callable[..., Any]) -> None:
    found = child(
        """
with Server(plugins) as server:
    rpc.add_server(server.endpoint)
    m = whispyx.Model(model, backend="rpc")
    found = [timed(m.transcribe, wav, abort=at_call(3, lambda: server.send(signal.SIGSTOP)))]
    found.append(timed(m.transcribe, wav))
    server.send(signal.SIGCONT)
    found.append(timed(m.transcribe, wav))
    print(json.dumps(found))
""",
        WHISPYX_RPC_TIMEOUT=str(FROZEN_S),
    )
    for kind, message, seconds in found[:2]:
        assert kind == "DeviceError"
        assert f"did not answer within {FROZEN_S} s" in message
        assert seconds < FROZEN_S + BOUND_S
    assert found[2][0] == ""
    assert "ask what you can do for your country" in found[2][1]


def test_a_model_without_a_file_says_that_it_must_be_loaded_again(child: Callable[..., Any]) -> None:
    found = child("""
with Server(plugins) as server:
    rpc.add_server(server.endpoint)
    content = open(model, "rb").read()
    m = whispyx.Model(content, backend="rpc")
    server.kill()
    with Server(plugins, port=server.port) as server:
        lost = [timed(m.transcribe, wav), timed(m.transcribe, wav)]
        print(json.dumps(lost + [timed(whispyx.Model(content, backend="rpc").transcribe, wav)]))
""")
    assert [kind for kind, _, _ in found] == ["DeviceError", "DeviceError", ""]
    assert "lost" in found[0][1]


def test_another_model_under_the_same_path_does_not_take_the_place_of_lost_weights(
    child: Callable[..., Any], tmp_path: Path
) -> None:
    for seed in (1, 2):
        TinyModel(seed=seed).write(tmp_path / f"{seed}.bin")
    found = child(
        """
import os
first, second = sys.argv[5:7]
with Server(plugins) as server:
    rpc.add_server(server.endpoint)
    m = whispyx.Model(first, backend="rpc")
    server.kill()
    os.replace(second, first)
    with Server(plugins, port=server.port) as server:
        print(json.dumps([timed(m.transcribe, wav), timed(whispyx.Model(first, backend="rpc").transcribe, wav)]))
""",
        str(tmp_path / "1.bin"),
        str(tmp_path / "2.bin"),
    )
    assert found[0][0] == "ModelFormatError"
    assert "has changed since the model was loaded" in found[0][1]
    assert found[1][0] == ""


def test_a_server_that_goes_while_the_model_is_sent_is_an_error(child: Callable[..., Any]) -> None:
    found = child("""
with Server(plugins) as server:
    rpc.add_server(server.endpoint)
    shots = [0]
    def progress(done, total, work):
        shots[0] += 1
        if shots[0] == 20:
            server.kill()
    print(json.dumps(timed(whispyx.Model, model, backend="rpc", progress=progress)))
""")
    kind, message, seconds = found
    assert kind == "DeviceError"
    assert "127.0.0.1" in message
    assert seconds < BOUND_S


def test_a_server_that_answers_no_longer_is_called_lost_and_not_full(child: Callable[..., Any]) -> None:
    found = child(
        """
false = FalseServer(polite())
(name,) = rpc.add_server(false.endpoint)
chosen = timed(whispyx.Model, model, backend=name)
with whispyx.Model(model) as m:
    fallbacks = [[f.wanted, f.used, f.reason] for f in m.devices.fallbacks]
print(json.dumps([chosen, fallbacks]))
""",
        **SHORT,
    )
    (kind, message, _), ((wanted, used, reason),) = found
    assert kind == "DeviceError"
    assert (wanted, used) == ("RPC0", "CPU")
    for text in (message, reason):
        assert "device RPC0 is lost" in text
        assert "did not answer within 3 s" in text
        assert "memory" not in text


def test_the_c_api_returns_its_status_when_the_server_is_lost(child: Callable[..., Any]) -> None:
    found = child("""
from whispyx import audio, capi
with Server(plugins) as server:
    os.environ["WHISPYX_RPC_SERVERS"] = server.endpoint
    os.environ["WHISPYX_BACKEND"] = "rpc"
    ctx = capi.whisper_init_from_file_with_params(model, capi.whisper_context_default_params())
    samples = audio.load(wav)
    params = capi.whisper_full_default_params(capi.WHISPER_SAMPLING_GREEDY)
    answers = [capi.whisper_full(ctx, params, samples, len(samples))]
    server.kill()
    answers.append(capi.whisper_full(ctx, params, samples, len(samples)))
    answers.append(capi.whisper_pcm_to_mel(ctx, samples, len(samples), 1))
    answers.append(capi.whisper_encode(ctx, 0, 1))
    capi.whisper_free(ctx)
    print(json.dumps(answers))
""")
    assert found[0] == 0
    assert found[1] == -6
    assert found[3] == -1


ADD = """
found = timed(rpc.add_server, sys.argv[5])
os.environ["WHISPYX_RPC_SERVERS"] = sys.argv[5]
chosen = timed(whispyx.Model, model, backend="rpc")
unset = whispyx.Model(model).devices
from whispyx.plugins import report
(reason,) = [record.reason for record in report().found if record.name == "rpc"]
print(json.dumps([found, chosen, unset, reason]))
"""


@pytest.mark.parametrize(
    ("talk", "why"),
    [
        (None, "refused"),
        (lambda connection: time.sleep(30), "did not answer within 3 s"),
        (lambda connection: connection.close(), "connection"),
        (lambda connection: connection.sendall(b"HTTP/1.1 400 Bad\r\n\r\n" * 9) or time.sleep(30), "makes no sense"),
        (lambda connection: connection.sendall(b"\x1c" + bytes(7) + b"\5\0") or time.sleep(30), "did not answer"),
        (polite(version=(4, 0, 0)), "version 4.0"),
        (polite(version=(5, 1, 0)), "version 5.1"),
        (polite(devices=0), "0 devices"),
        (polite(devices=2**32 - 1), "4294967295 devices"),
        (polite(alignment=0), "makes no sense"),
        (polite(alignment=48), "makes no sense"),
        (polite(max_size=0), "makes no sense"),
    ],
    ids=["absent", "silent", "closes", "web", "stops", "old", "new", "none", "many", "zero", "odd", "small"],
)
def test_what_is_no_server_is_refused_in_time_and_the_cpu_is_used_by_default(
    child: Callable[..., Any], talk: Callable[..., object] | None, why: str
) -> None:
    false = FalseServer((lambda connection: None) if talk is None else talk)  # type: ignore[arg-type, return-value]
    if talk is None:
        false.close()
    try:
        found, chosen, unset, reason = child(ADD, false.endpoint, **SHORT)
    finally:
        false.close()
    for kind, message, seconds in (found, chosen):
        assert kind == "DeviceError"
        assert false.endpoint in message
        assert re.search(why, message), message
        assert seconds < BOUND_S
    assert re.search(why, reason)
    assert unset[-1] == "CPU"
    assert "RPC0" not in unset


def test_a_server_that_is_found_nowhere_is_refused_in_time(child: Callable[..., Any]) -> None:
    found = child(
        """
print(json.dumps([timed(rpc.add_server, "no-such-host.invalid:50052"), timed(rpc.add_server, "192.0.2.1:50052")]))
""",
        **SHORT,
    )
    assert [kind for kind, _, _ in found] == ["DeviceError", "DeviceError"]
    assert "cannot be resolved" in found[0][1]
    assert found[1][2] < BOUND_S


def test_no_server_named_is_a_reason(child: Callable[..., Any]) -> None:
    kind, message, _ = child('print(json.dumps(timed(whispyx.Model, model, backend="rpc")))')
    assert kind == "BackendUnsupportedError"
    assert "WHISPYX_RPC_SERVERS" in message


@pytest.mark.parametrize("env", [{"WHISPYX_RPC_SERVERS": "nonsense"}, {"WHISPYX_RPC_TIMEOUT": "soon"}])
def test_a_malformed_variable_is_an_error_that_names_it(child: Callable[..., Any], env: dict[str, str]) -> None:
    given = {"WHISPYX_RPC_SERVERS": "127.0.0.1:1", **env}
    kind, message, _ = child('print(json.dumps(timed(whispyx.Model, model, backend="rpc")))', **given)
    assert kind == "BackendError"
    assert next(iter(env)) in message


HARM = """
import random
with Server(plugins) as server:
    dice = random.Random(int(sys.argv[5]))
    relay = Relay(server.endpoint)
    (name,) = rpc.add_server(relay.endpoint)
    m = whispyx.Model(model, backend=name)
    good = timed(m.transcribe, wav)
    def garble(data):
        if dice.random() > 0.02:
            return data
        if dice.random() < 0.2:
            return None
        if dice.random() < 0.5:
            return data[: dice.randrange(len(data) + 1)]
        changed = bytearray(data)
        for _ in range(1 + len(changed) // 64):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        return bytes(changed)
    bad = []
    for _ in range(int(sys.argv[6])):
        relay.harm = garble
        bad.append(timed(m.transcribe, wav, temperature_inc=0.0, max_tokens=64))
        relay.harm = None
        try:
            m.transcribe(wav)
        except DeviceError:
            pass
    print(json.dumps([good, bad, timed(m.transcribe, wav)]))
"""


@pytest.mark.parametrize("seed", [1])
def test_answers_that_are_garbled_on_the_way_end_no_process(child: Callable[..., Any], seed: int) -> None:
    good, bad, after = child(HARM, str(seed), "2", WHISPYX_RPC_TIMEOUT="6")
    for kind, _, seconds in bad:  # numbers that are merely wrong may give a text, or none that can be used
        assert kind in ("DeviceError", "ComputeError", "ComputeMemoryError", "")
        assert seconds < 60
    assert after[:2] == good[:2]
    assert good[0] == ""


def test_a_forked_process_leaves_the_connection_of_its_parent_alone(child: Callable[..., Any]) -> None:
    found = child("""
with Server(plugins) as server:
    rpc.add_server(server.endpoint)
    m = whispyx.Model(model, backend="rpc")
    before = m.transcribe(wav).text
    pid = os.fork()
    if pid == 0:
        try:
            kind = timed(whispyx.Model, model, backend="rpc")[0]
            m.close()
            del m
        finally:
            os._exit(0 if kind == "DeviceError" else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps([status, before == m.transcribe(wav).text]))
""")
    assert found == [0, True]


@pytest.mark.parametrize(
    "text",
    [
        *("host", "host:", ":1", "host:0", "host:65536", "a b:1", "host:1:2", "http://host:1", "fe80::1:5", ""),
        *(None, 5, b"127.0.0.1:1", ("127.0.0.1", 1)),
    ],
)
def test_an_address_that_is_none_is_refused(text: Any) -> None:
    with pytest.raises(ParamsError, match="host:port"):
        check_endpoint(text)
    with pytest.raises(ParamsError, match="host:port"):
        rpc.add_server(text)


@pytest.mark.parametrize(
    ("text", "meant"), [(" Host-1.example:050 ", "host-1.example:50"), ("[FE80::1]:7", "[fe80::1]:7")]
)
def test_an_address_is_brought_into_one_form(text: str, meant: str) -> None:
    assert check_endpoint(text) == meant


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_cleanly(plugins: Path, number: int) -> None:
    with Server(plugins, "--device", "cpu") as server:
        assert server.line.startswith("serving CPU (")
        assert server.endpoint.startswith("127.0.0.1:")
        assert server.stop(number) == 0
        assert server.errors() == ""
        # None of its processes is left.
        with pytest.raises(ProcessLookupError):
            server.send(0)


def test_the_server_warns_when_it_is_open_to_others(plugins: Path) -> None:
    with Server(plugins, "--host", "0.0.0.0") as server:
        assert "neither a password nor encryption" in server.errors()
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--device", "nothing"], 4, "there is no plugin and no device of that name"),
        (["--device", "a b"], 2, "backend"),
        (["--host", "no-such-host.invalid"], 2, "--host"),
        (["--port", "65536"], 2, "--port"),
        (["--clients", "0"], 2, "--clients"),
        (["-t", "0"], 2, "--threads"),
    ],
)
def test_a_server_that_cannot_serve_says_why(plugins: Path, arguments: list[str], code: int, why: str) -> None:
    with Server(plugins, *arguments) as server:
        assert server.process.wait(60) == code
        assert server.line == ""
        assert why in server.errors()


def test_a_server_without_its_plugin_or_its_port_says_so(plugins: Path, tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert server.process.wait(60) == 4
        assert "rpc" in server.errors()
    with Server(plugins) as first, Server(plugins, port=first.port) as second:
        assert second.process.wait(60) == 4
        assert f"127.0.0.1:{first.port}" in second.errors()
