"""Settings: sources, values, and error messages."""

import re
from pathlib import Path

import pytest

from remit import Limits, Misused, Settings, load_settings
from remit.system.settings_files import describe


def load(root: Path, toml: str = "", environ: dict[str, str] | None = None, **arguments: object) -> Settings:
    if toml:
        (root / "remit.toml").write_text(toml)
    return load_settings(root, arguments, environ or {})


def test_empty_project_has_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings()
    assert {source for _, _, source in describe(load(tmp_path))} == {"default"}


def test_precedence_is_arguments_environment_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.remit]\nmax_depth = 2\nqueue_limit = 2\nslots_total = 2\n[tool.remit.budget]\nalive = 2"
    )
    toml = "queue_limit = 3\nslots_total = 3\n[budget]\ndelegations = 3"
    settings = load(tmp_path, toml, {"REMIT_SLOTS_TOTAL": "4", "REMIT_AGEING_SECONDS": "4"}, ageing_seconds=5)
    assert (settings.max_depth, settings.queue_limit, settings.slots_total, settings.ageing_seconds) == (2, 3, 4, 5)
    assert settings.budget == Limits(delegations=3, alive=2)
    assert {key: source for key, source in settings.sources.items() if source != "default"} == {
        "max_depth": "pyproject.toml:[tool.remit].max_depth",
        "budget.alive": "pyproject.toml:[tool.remit.budget].alive",
        "queue_limit": "remit.toml:queue_limit",
        "budget.delegations": "remit.toml:[budget].delegations",
        "slots_total": "env REMIT_SLOTS_TOTAL",
        "ageing_seconds": "argument",
    }


@pytest.mark.parametrize(
    ("name", "default", "maximum"),
    [
        ("task", 300, 300),
        ("/research", 3600, 7200),
        ("implement", 7200, 14400),
        ("worker", 60, 300),
        ("worker.read_file", 60, 300),
        ("researcher.deep_research", 300, 600),
        ("coder", 120, 300),
        ("digest", 3600, 7200),
    ],
)
def test_each_command_and_target_has_its_time_limits(name: str, default: float, maximum: float) -> None:
    limits = Settings().limits_for(name)
    assert (limits.default_seconds, limits.maximum_seconds) == (default, maximum)


def test_time_limits_can_be_set_in_part_and_for_new_names(tmp_path: Path) -> None:
    toml = """
        [timeouts]
        other.maximum = 9000
        digest.default = 5
        quick.maximum = 10
        "worker.web_fetch".default = 20
    """
    settings = load(tmp_path, toml, {"REMIT_TIMEOUTS__WORKER__DEFAULT": "30"})
    found = {n: settings.limits_for(n) for n in ("worker", "digest", "quick", "worker.web_fetch", "elsewhere")}
    assert {n: (x.default_seconds, x.maximum_seconds) for n, x in found.items()} == {
        "worker": (30, 300),
        "digest": (5, 9000),
        "quick": (10, 10),
        "worker.web_fetch": (20, 9000),
        "elsewhere": (3600, 9000),
    }


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            "[timeouts.worker]\ndefault = 400",
            r"remit.toml:\[timeouts.worker\].default: the default of 400 s for worker is above its maximum of 300 s",
        ),
        ("[timeouts.worker]\nlimit = 3", r"\[timeouts\.worker\]\.limit: there is no key 'limit': allowed are default, maximum"),
        ("max_deph = 3", r"remit\.toml:max_deph: there is no key 'max_deph': did you mean max_depth\?"),
        ("[budget]\ndelegatons = 3", r"remit\.toml:\[budget\]\.delegatons: .*did you mean delegations\?"),
        (
            "[[routing.research]]\nagnt = 'x'",
            r"remit\.toml:\[routing\]\.research: routing\.research\.0\.agent is missing; .*did you mean agent",
        ),
        ("durability = 'disk'", r"remit\.toml:durability: durability must be 'process' or 'power', not 'disk'"),
        ("slots_total = 0", r"slots_total must be greater than or equal to 1, not 0"),
        ("ageing_seconds = inf", r"ageing_seconds must be a finite number, not inf"),
        ("budget = 5", r"remit\.toml:budget: budget must be a table of keys, not 5"),
        ("max_depth = ?", r"remit\.toml is not valid TOML: .*line 1"),
    ],
)
def test_invalid_setting_names_file_key_and_allowed_values(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(Misused, match=message):
        load(tmp_path, toml)


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("serve.client_ca", "reverse proxy"),
        ("serve.push_inside", "by its stream"),
        ("serve.tls_certificate", "reverse proxy"),
        ("serve.requests_per_second", "reverse proxy"),
        ("models.big.tools", "chat template"),
    ],
)
def test_removed_setting_has_no_effect_but_a_warning_that_says_what_to_do(
    tmp_path: Path, setting: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    table, _, key = setting.rpartition(".")
    model = 'kind = "openai"\nmodel = "m"\n' if table == "models.big" else ""
    load(tmp_path, f'[{table}]\n{model}{key} = "7"')
    load(tmp_path, environ={} if model else {f"REMIT_{setting.replace('.', '__').upper()}": "7"})
    assert len(caplog.messages) == (1 if model else 2), "once for each place"
    for said in caplog.messages:
        assert key in said.lower()
        assert re.search(rf"this setting was removed and has no effect\. Delete it: .*{advice}", said)


@pytest.mark.parametrize("value", ["unix", "unix:/run/remit.sock"])
def test_removed_unix_socket_of_http_says_what_to_do_instead(tmp_path: Path, value: str) -> None:
    for one in ({"environ": {"REMIT_SERVE__HTTP": value}}, {"serve": {"http": value}}, {"toml": f"[serve]\nhttp = {value!r}"}):
        with pytest.raises(Misused, match=r"serve\.http must be HOST:PORT.*gRPC.*reverse proxy"):
            load(tmp_path, **one)  # type: ignore[arg-type]


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(Misused) as caught:
        load(tmp_path, "cycles = 'x'\nslots_total = -1", {"REMIT_MAX_DEPTH": "deep"}, queue_limit="long")
    for place in ("remit.toml:cycles", "remit.toml:slots_total", "env REMIT_MAX_DEPTH", "argument: queue_limit"):
        assert place in str(caught.value)


def test_misspelt_variable_is_refused_and_a_foreign_one_ignored(tmp_path: Path) -> None:
    with pytest.raises(Misused, match=r"env REMIT_TIMEOUT__WORKER__DEFAULT: .*Did you mean REMIT_TIMEOUTS__WORKER__DEFAULT\?"):
        load(tmp_path, environ={"REMIT_TIMEOUT__WORKER__DEFAULT": "3"})
    foreign = {"REMIT_MARK": "a:b:c", "REMIT_SESSION": "sess_1766743200_abc123", "REMIT_HOMEPAGE": "x", "PATH": "/bin"}
    assert load(tmp_path, environ=foreign) == Settings()


AGENTS = """
profiles_on = "mine"

[agents.mine]
kind = "claude"
environment = { ANTHROPIC_API_KEY = "secret" }

[agents."other.one"]
command = ["true"]

[agents.bare]
"""


def test_environment_of_an_agent_is_described_by_its_names_only(tmp_path: Path) -> None:
    described = {key: (value, source) for key, value, source in describe(load(tmp_path, AGENTS, {"REMIT_AGENTS__MINE__MODEL": "opus"}))}
    assert described["agents.mine.environment"][0] == ["ANTHROPIC_API_KEY"]
    assert described["agents.mine.environment"][1].startswith("remit.toml:[agents.mine")
    assert described["agents.mine.model"] == ("opus", "env REMIT_AGENTS__MINE__MODEL")
    assert described["agents.bare"][0] == {}
    assert "secret" not in str(described)


def test_served_apis_can_be_set_by_either_name(tmp_path: Path) -> None:
    toml = '[serve]\ndoors = ["http"]\n'
    assert load(tmp_path, toml).serve.apis == ("http",)
    assert load(tmp_path, toml, serve={"apis": ("grpc",)}).serve.apis == ("grpc",)
