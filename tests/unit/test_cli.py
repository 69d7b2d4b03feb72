"""The command line without a server: where it goes, how things look, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from muster.cli import main as entry
from muster.cli.access import parse_rule
from muster.cli.create import with_node_size
from muster.cli.ending import Ended, as_typed, ended_by
from muster.cli.env import CLIENTS
from muster.cli.show import span, table
from muster.cli.target import Asked, Target, find_target
from muster.cli.told import explained
from muster.cli.verb import SECONDS, Verb
from muster.cli.watch import news, node_words, picture
from muster.sdk import ApiError, TimedOut, Unreachable
from muster.settings import SETTINGS


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        entry.main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MUSTER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def all_commands() -> list[tuple[str, click.Command]]:
    context = click.Context(entry.root)
    found: list[tuple[str, click.Command]] = []
    for name in entry.root.list_commands(context):
        command = entry.root.get_command(context, name)
        assert command is not None
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {verb}", under) for verb, under in command.commands.items()]
    return found


def test_every_command_of_the_table_exists_and_says_what_it_does() -> None:
    mute = [name for name, command in all_commands() if not (command.help or "").strip()]
    assert not mute


@pytest.mark.parametrize(
    "noun", ["account", "project", "member", "key", "cluster", "volume", "ssh-key", "security-group"]
)
def test_every_noun_has_a_create_form(noun: str) -> None:
    assert f"{noun} create" in dict(all_commands())


def test_what_destroys_asks() -> None:
    """A verb that ends something has --yes, and so asks without it."""
    ends = ("delete", "remove", "revoke", "release", "pause", "unmount", "down")
    for name, command in all_commands():
        if name.split()[-1] in ends:
            assert any("--yes" in option.opts for option in command.params), name


def test_every_verb_on_a_server_can_be_read_by_programs() -> None:
    for name, command in all_commands():
        if isinstance(command, Verb):
            assert any("--output" in option.opts for option in command.params), name


def test_up_has_a_flag_for_every_setting() -> None:
    up = dict(all_commands())["up"]
    assert {row.flag for row in SETTINGS} <= {flag for option in up.params for flag in option.opts}


def test_help_documents_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    entry.main(["--help"])
    assert "server unreachable" in capsys.readouterr().out


def test_a_bad_setting_is_a_sentence_and_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("up", "--port", "many") == 2
    assert "--port must be a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", "192.0.2.1", "--insecure-bind", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--home", "/proc/nowhere"], "cannot make the home /proc/nowhere"),
        (["--database", "sqlite:////nowhere/muster.db"], "cannot open the database /nowhere/muster.db"),
        (["--tls-cert", "/etc/passwd", "--tls-key", "/etc/passwd"], "no PEM certificate"),
    ],
)
def test_a_server_that_cannot_start_says_why_and_fails(flags: list[str], words: str, tmp_path: Path) -> None:
    asked = ["up", "--fleet", "simulated", "--port", "0", "--home", str(tmp_path / "home"), *flags]
    ended = subprocess.run(
        [sys.executable, "-m", "muster.cli.main", *asked], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_broke_on_the_servers_side_can_be_told_to_its_operator() -> None:
    assert "req-1" in ended_by(ApiError(500, "internal", "this broke", request_id="req-1")).message


def test_nobody_at_the_address_is_code_7(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cluster", "list", "--url", "http://127.0.0.1:1", "--api-key", "mk-12345678") == 7
    assert "nobody answers" in capsys.readouterr().err


def test_no_server_at_all_says_how_to_get_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cluster", "list") == 7
    assert "muster up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(404, "not_found", "x"), 3),
        (ApiError(409, "name_taken", "x"), 4),
        (ApiError(412, "stale", "x"), 4),
        (ApiError(402, "insufficient_balance", "x"), 4),
        (ApiError(403, "quota_exceeded", "x"), 4),
        (ApiError(403, "forbidden", "x"), 5),
        (ApiError(401, "unauthenticated", "x"), 5),
        (ApiError(400, "invalid", "x"), 2),
        (ApiError(500, "unknown", "x"), 1),
        (TimedOut("x"), 6),
        (Unreachable("x"), 7),
    ],
)
def test_every_end_has_its_code(error: Any, code: int) -> None:
    assert ended_by(error).code == code


def home_with_server(tmp_path: Path, url: str = "http://127.0.0.1:9999") -> Path:
    home = tmp_path / "home"
    (home / "run").mkdir(parents=True)
    (home / "run" / "server.json").write_text(json.dumps({"pid": os.getpid(), "url": url}))
    (home / "tenant.key").write_text("mk-tenant\n")
    (home / "operator.key").write_text("mk-operator\n")
    return home


def test_the_local_home_gives_the_tenants_key_and_the_operators_to_the_operator(tmp_path: Path) -> None:
    home = str(home_with_server(tmp_path))
    assert find_target(Asked(home=home), {}).key == "mk-tenant"
    assert find_target(Asked(home=home, operator=True), {}).key == "mk-operator"


def test_a_homes_key_is_sent_to_no_other_address(tmp_path: Path) -> None:
    home = str(home_with_server(tmp_path))
    with pytest.raises(Ended, match="no API key"):
        find_target(Asked(home=home, url="http://elsewhere.test"), {})
    environ = {"MUSTER_URL": "http://elsewhere.test", "MUSTER_API_KEY": "mk-env"}
    assert find_target(Asked(home=home, operator=True), environ).key == "mk-env"


def test_after_eval_of_env_the_operators_verbs_still_find_the_operators_key(tmp_path: Path) -> None:
    home = str(home_with_server(tmp_path))
    environ = {"MUSTER_URL": "http://127.0.0.1:9999", "MUSTER_API_KEY": "mk-tenant", "MUSTER_HOME": home}
    assert find_target(Asked(operator=True), environ).key == "mk-operator"
    assert find_target(Asked(), environ).key == "mk-tenant"


def test_a_key_in_the_environment_is_sent_only_to_the_address_in_the_environment(tmp_path: Path) -> None:
    home = str(home_with_server(tmp_path))
    environ = {"MUSTER_URL": "http://elsewhere.test", "MUSTER_API_KEY": "mk-env", "MUSTER_OPERATOR_KEY": "mk-env-op"}
    own = Asked(home=home, url="http://127.0.0.1:9999")
    assert find_target(own, environ).key == "mk-tenant"
    assert find_target(Asked(home=home, url=own.url, operator=True), environ).key == "mk-operator"


def test_a_server_that_died_is_not_running(tmp_path: Path) -> None:
    home = home_with_server(tmp_path)
    (home / "run" / "server.json").write_text(json.dumps({"pid": 2**22 + 1, "url": "http://127.0.0.1:9999"}))
    with pytest.raises(Ended, match="no server runs"):
        find_target(Asked(home=str(home)), {})


def test_profiles_are_kept_private_used_and_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "key"
    secret.write_text("mk-profile\n")
    entry.main(["profile", "add", "lab", "--url", "https://lab.test/", "--key-file", str(secret)])
    kept = tmp_path / "config" / "muster" / "config.yaml"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(kept.read_text())["profiles"]["lab"]["api_key"] == "mk-profile"
    assert find_target(Asked(), os.environ) == Target("https://lab.test", "mk-profile", "profile lab")
    entry.main(["profile", "list"])
    assert "mk-profile" not in capsys.readouterr().out
    entry.main(["profile", "remove", "lab", "--yes"])
    assert run("cluster", "list", "--profile", "lab") == 7


def test_destroying_without_a_terminal_needs_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("catalog", "remove", "region", "Delhi", "--url", "http://127.0.0.1:1", "--api-key", "k") == 2
    assert "--yes" in capsys.readouterr().err


def test_env_tells_each_client_its_own_names() -> None:
    target = Target("http://127.0.0.1:8787", "mk-1", "test")
    told = {client: set(make(target)) for client, make in CLIENTS.items()}
    assert told["muster"] == {"MUSTER_URL", "MUSTER_API_KEY"}
    assert {"TOGETHER_BASE_URL", "TOGETHER_API_KEY"} <= told["together"]
    assert CLIENTS["tir"](target)["E2E_TIR_API_HOST"].endswith("/")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_and_installed(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry.main(["completion", shell])
    assert "_MUSTER_COMPLETE" in capsys.readouterr().out
    entry.main(["completion", shell, "--install"])
    assert len([path for path in tmp_path.rglob("*muster*") if path.is_file()]) == 1


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("30s", 30), ("10m", 600), ("2h", 7200), ("1.5d", 129600)])
def test_durations(text: str, seconds: float) -> None:
    assert SECONDS.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "-5"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SECONDS.convert(text, None, None)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (190, "3m 10s"), (7500, "2h 5m"), (349_200, "4d 1h")]
)
def test_spans_as_people_say_them(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_rules_as_people_type_them() -> None:
    assert parse_rule("inbound:tcp:22:10.0.0.0/8") == {
        "direction": "inbound",
        "protocol": "tcp",
        "port_min": 22,
        "port_max": 22,
        "cidr": "10.0.0.0/8",
    }
    assert parse_rule("inbound:udp:60000-61000")["port_max"] == 61000
    assert parse_rule("outbound:any") == {"direction": "outbound", "protocol": "any"}
    with pytest.raises(Ended):
        parse_rule("tcp:22")


def test_a_small_ask_is_a_slice_of_a_host() -> None:
    assert with_node_size({"gpus": 2})["gpus_per_node"] == 2
    assert "gpus_per_node" not in with_node_size({"gpus": 8})
    assert with_node_size({"gpus": 4, "gpus_per_node": 1})["gpus_per_node"] == 1


def test_a_table_is_aligned_and_never_cut() -> None:
    rows = [{"name": "a" * 90, "on": True}, {"name": "b", "on": None}]
    lines = click.unstyle(table(rows, [("NAME", "name"), ("ON", "on")])).splitlines()
    assert lines[1] == "a" * 90 + "  yes"
    assert lines[2].endswith("  -")


def cluster(phase: str, **more: Any) -> dict[str, Any]:
    node = {"name": "w-0", "role": "worker", "phase": "running"}
    return {
        "name": "demo",
        "type": "slurm",
        "gpus": 16,
        "gpu_type": "H100_SXM",
        "region": "Delhi",
        "workers": 2,
        "simulated": True,
        "phase": phase,
        "phase_since": "1970-01-01T00:01:00.000Z",
        "history": [
            {"phase": "network", "at": "1970-01-01T00:00:00.000Z", "because": "accepted"},
            {"phase": phase, "at": "1970-01-01T00:01:00.000Z", "because": ""},
        ],
        "nodes": [
            {"name": "controller", "role": "controller", "phase": "running"},
            node,
            {**node, "phase": "booting"},
        ],
        "waiting": {"for": "2 workers", "until": "1970-01-01T00:03:00.000Z"},
        **more,
    }


def test_the_live_view_shows_the_road_the_time_and_the_nodes() -> None:
    lines = [line for _, line in picture(cluster("workers"), now=100.0)]
    assert "(simulated)" in lines[0]
    assert lines[1].split() == ["✓", "network", "1m"]
    assert lines[2].split()[:3] == ["▸", "workers", "40s"]
    assert "waiting: 2 workers" in lines[2]
    assert [line.strip() for line in lines[3:6]] == ["drivers", "testing", "ready"]
    assert lines[-1].strip() == "controller running · workers 1 of 2"


def test_without_a_terminal_only_news_is_told() -> None:
    first = cluster("workers")
    assert news(None, first)[1:] == ["workers"]
    assert news(first, first) == []
    later = {"phase": "drivers", "at": "1970-01-01T00:02:00.000Z", "because": "2 workers are up"}
    last = {"phase": "testing", "at": "1970-01-01T00:03:00.000Z", "because": "drivers are up"}
    moved = cluster("testing", history=[*first["history"], later, last])
    assert news(first, moved) == ["drivers: 2 workers are up", "testing: drivers are up"]
    grown = cluster("workers", nodes=[{"name": "w-0", "role": "worker", "phase": "running"}] * 2)
    assert news(first, grown) == [f"  {node_words(grown)}"]


NODE = {"node": "w-0"}


def test_an_explanation_in_words() -> None:
    told = {
        "name": "demo",
        "phase": "workers",
        "because": "hosts are booting",
        "since": "1970-01-01T00:01:00.000Z",
        "stuck_since": None,
        "waiting": {"for": "w-1", "until": "1970-01-01T00:03:00.000Z"},
        "conditions": [],
        "nodes": {"running": 1, "booting": 1},
        "troubled": ["w-1 is slow"],
        "steps": [
            {"seq": 2, "at": "1970-01-01T00:01:00.000Z", "type": "cluster.phase", "message": "storage is ready"},
            {"seq": 1, "at": "1970-01-01T00:00:00.000Z", "type": "cluster.created", "message": "16 GPUs"},
            {"seq": 3, "at": "1970-01-01T00:01:00.000Z", "type": "node.phase", "message": "it booted", "data": NODE},
        ],
    }
    words = explained(told, now=120.0)
    assert "demo is workers for 1m: hosts are booting." in words
    assert "Waiting: w-1 (1m more at most)." in words
    assert "1 running, 1 booting" in words
    assert "w-1 is slow" in words
    assert "node.phase          w-0: it booted" in words
    assert words.index("cluster.created") < words.index("cluster.phase")


def test_what_to_type_is_told_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    assert as_typed("muster cluster wait demo") == "./muster cluster wait demo"
    assert as_typed("--as-operator") == "--as-operator"
    monkeypatch.delenv("MUSTER_COMMAND")
    assert as_typed("muster up") == "muster up"
