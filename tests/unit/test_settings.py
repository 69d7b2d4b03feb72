"""Settings: one table, flags over environment over defaults, and a sentence for every mistake."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from muster.settings import BY_NAME, SETTINGS, BadSetting, Settings, read


def test_the_table_and_the_fields_are_the_same() -> None:
    assert [row.name for row in SETTINGS] == [field.name for field in dataclasses.fields(Settings)]


def test_every_row_has_a_sentence_and_every_number_a_bound() -> None:
    for row in SETTINGS:
        assert row.sentence.endswith("."), row.name
        if row.kind in ("int", "number"):
            assert row.least is not None, row.name
            assert row.most is not None, row.name


def test_defaults_stand_alone(tmp_path: Path) -> None:
    settings = read({"home": str(tmp_path)}, {})
    assert (settings.host, settings.port, settings.hosts, settings.role) == ("127.0.0.1", 8787, 64, "all")
    assert settings.database == f"sqlite:///{tmp_path}/muster.db"
    assert settings.answers
    assert settings.moves


def test_a_flag_wins_over_the_environment_and_empty_is_not_set() -> None:
    environ = {"MUSTER_PORT": "9000", "MUSTER_HOSTS": "", "MUSTER_ROLE": "api"}
    settings = read({"port": "0"}, environ)
    assert (settings.port, settings.hosts, settings.role) == (0, 64, "api")
    assert not settings.moves


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"port": "70000"}, "--port must be between 0 and 65535"),
        ({"port": "http"}, "--port must be a whole number"),
        ({"time_scale": "fast"}, "--time-scale must be a number of times"),
        ({"time_scale": "nan"}, "--time-scale must be between 0.01 and 100000 times, not nan"),
        ({"hosts": "0"}, "--hosts must be between 1 and 1000000 hosts"),
        ({"fleet": "cloud"}, "--fleet must be one of auto, simulated, local, none"),
        ({"database": "mysql://x"}, "--database must be sqlite:///PATH"),
        ({"tls_cert": "/nowhere"}, "belong together"),
        ({"fleet_file": "/nowhere.yaml"}, "there is no file /nowhere.yaml"),
        ({"operator_key": "short"}, "at least 8 printable"),
        ({"operator_key": "same-key-1", "tenant_key": "same-key-1"}, "must differ"),
        ({"operator_key_file": "/nowhere"}, "--operator-key-file: cannot read"),
        ({"failpoint": "cluster.accept"}, "--failpoint must look like"),
        ({"failpoint": "nowhere:after"}, "--failpoint must look like"),
        ({"host": "0.0.0.0"}, "refusing to listen on 0.0.0.0 without TLS"),
        ({"host": "0.0.0.0", "insecure_bind": "127.0.0.1"}, "refusing to listen"),
        ({"world": "/somewhere.db"}, "--world is for several servers on one PostgreSQL"),
        ({"colour": "red"}, "there is no setting 'colour'"),
    ],
)
def test_a_bad_value_is_one_clear_sentence(flags: dict[str, str], words: str) -> None:
    with pytest.raises(BadSetting) as refused:
        read(flags, {})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wide_bind_is_allowed_when_said_twice() -> None:
    assert read({"host": "0.0.0.0", "insecure_bind": "0.0.0.0"}, {}).host == "0.0.0.0"
    assert read({"host": "::1"}, {}).host == "::1"


def test_keys_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("mk-very-secret\n")
    settings = read({"operator_key_file": str(path), "tenant_key": "mk-also-secret"}, {})
    assert settings.operator_key == "mk-very-secret"
    assert "secret" not in repr(settings)
    with pytest.raises(BadSetting, match="not both"):
        read({"operator_key_file": str(path), "operator_key": "mk-other-key"}, {})


def test_flags_and_twins_are_derived() -> None:
    assert BY_NAME["fleet_file"].flag == "--fleet-file"
    assert BY_NAME["fleet_file"].env == "MUSTER_FLEET_FILE"
