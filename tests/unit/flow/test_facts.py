"""Facts for policy rules: paths, addresses and commands."""

from pathlib import Path

import pytest

from remit import AgentSpec, Misused
from remit.core.policy import Fact
from remit.runtime.policy_facts import facts_of, path_facts, real_path_facts, reported_facts, url_facts

ROOT = Path("/project")


@pytest.mark.parametrize(
    ("said", "path", "inside"),
    [
        ("src/x.py", "src/x.py", True),
        ("./src//a/../x.py", "src/x.py", True),
        ("", ".", True),
        (".", ".", True),
        ("/project/src/x.py", "src/x.py", True),
        ("//project/src/x.py", "src/x.py", True),
        ("/project", ".", True),
        ("..", "..", False),
        ("src/../../etc/passwd", "../etc/passwd", False),
        ("/etc/passwd", "/etc/passwd", False),
        ("/projects/x", "/projects/x", False),
        ("a\0b", "a\0b", False),
    ],
)
def test_path_is_normalized_and_inside_or_not(said: str, path: str, inside: bool) -> None:
    facts = path_facts(said, ROOT)
    assert (facts["path"], facts["inside"]) == (path, inside)


def test_link_does_not_bypass_a_rule(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("x")
    (tmp_path / "notes.txt").symlink_to(".env")
    (tmp_path / "out").symlink_to("/etc")
    led = real_path_facts(path_facts("notes.txt", tmp_path), tmp_path)
    assert led is not None
    assert led["name"] == ".env"
    outside = real_path_facts(path_facts("out/passwd", tmp_path), tmp_path)
    assert outside is not None
    assert not outside["inside"]
    assert real_path_facts(path_facts(".env", tmp_path), tmp_path) is None


def test_link_anywhere_in_a_path_is_resolved(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a/b/c").mkdir(parents=True)
    (root / "a/aside").symlink_to("b")
    (root / "round").symlink_to("round")
    (tmp_path / "other").symlink_to("root")
    for workspace in (root, tmp_path / "other"):
        led = real_path_facts(path_facts("a/aside/c/new.txt", workspace), workspace)
        assert led is not None
        assert led["path"] == "a/b/c/new.txt"
        for plain in (".", "a", "a/b/c", "a/b/c/new.txt", "none/at/all", "a/" + "x" * 300, "round/x", "a/\ud800"):
            assert real_path_facts(path_facts(plain, workspace), workspace) is None, plain
    removed = real_path_facts(path_facts("a/aside", root), root, follows=False)
    assert removed is None  # removing affects the link itself


@pytest.mark.parametrize(
    ("url", "host", "port", "address"),
    [
        ("https://Example.COM./a?token=x#y", "example.com", 443, None),
        ("http://user:secret@127.0.0.1:8080/", "127.0.0.1", 8080, "loopback"),
        ("http://2130706433/", "127.0.0.1", 80, "loopback"),
        ("http://0x7f.1/", "127.0.0.1", 80, "loopback"),
        ("http://localhost/", "localhost", 80, "loopback"),
        ("http://[::1]:1/", "::1", 1, "loopback"),
        ("http://[::ffff:10.0.0.1]/", "::ffff:10.0.0.1", 80, "private"),
        ("http://169.254.169.254/latest", "169.254.169.254", 80, "metadata"),
        ("http://0.0.0.0/", "0.0.0.0", 80, "reserved"),
        ("http://bücher.example/", "xn--bcher-kva.example", 80, None),
        ("http://8.8.8.8/", "8.8.8.8", 80, "public"),
    ],
)
def test_url_has_host_port_and_kind_of_address(url: str, host: str, port: int, address: str | None) -> None:
    facts = url_facts(url, ROOT)
    assert (facts["host"], facts["port"], facts.get("address")) == (host, port, address)
    assert "secret" not in str(facts)
    assert "token" not in str(facts)


def test_each_path_of_a_list_is_checked() -> None:
    spec = AgentSpec(name="x", acts_on={"paths": Fact.PATH})
    assert [facts["path"] for facts in facts_of(spec, {"paths": ["a", "../b"]}, ROOT)] == ["a", "../b"]
    with pytest.raises(Misused, match="more than"):
        facts_of(spec, {"paths": ["x"] * 2000}, ROOT)


def test_facts_reported_by_an_agent_cannot_override_ours() -> None:
    lies = {"path": "../x", "inside": True, "caller": "orchestrator", "tokens_left": 10**9}
    assert reported_facts(lies, ROOT) == [path_facts("../x", ROOT)]
    assert reported_facts({"url": "http://127.0.0.1/", "address": "public"}, ROOT)[0]["address"] == "loopback"
    assert reported_facts({"url": "http://example.com/", "address": "private", "weight": 1.5}, ROOT)[0] == {
        "url": "http://example.com/", "scheme": "http", "host": "example.com", "port": 80, "address": "private", "weight": "1.5",
    }  # fmt: skip


def test_path_that_goes_back_through_a_link_is_not_inside(tmp_path: Path) -> None:
    """`link/../x` is `x` to a reader; to the kernel it is a sibling of the link's target."""
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("sub/deep")
    for path in ("link/../secret", str(tmp_path / "link" / ".." / "secret")):
        facts = path_facts(path, tmp_path)
        assert not facts["inside"]
        assert "sub" in facts["parts"]
    assert path_facts("sub/../secret", tmp_path)["inside"]


def test_fullwidth_dots_and_letters_of_a_host_are_normalized() -> None:
    for host in ("example.com.", "example.com。", "EXAMPLE。com．", "ｅxample.com"):
        assert url_facts(f"https://{host}/", ROOT)["host"] == "example.com"
    assert url_facts("http://localhost。/", ROOT)["address"] == "loopback"
