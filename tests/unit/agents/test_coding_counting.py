"""Issue 3, item 3: tokens and money are counted once, vendors' errors are ours."""

import pytest

from remit.agents.coding.dialect import Scope, Spent
from remit.agents.coding.faults import error_for, is_session_gone
from remit.agents.coding.hearing import Account
from remit.core.errors import Failed, Unavailable


def test_a_message_that_is_said_twice_is_counted_once() -> None:
    account = Account()
    assert account.more(Spent(scope=Scope.ITEM, key="m1", tokens=100)) == (100, 0.0)
    assert account.more(Spent(scope=Scope.ITEM, key="m1", tokens=100)) == (0, 0.0)
    assert account.more(Spent(scope=Scope.ITEM, key="m2", tokens=50)) == (50, 0.0)


def test_the_total_of_a_run_adds_only_what_was_not_counted_yet() -> None:
    account = Account()
    account.more(Spent(scope=Scope.ITEM, key="m1", tokens=100))
    assert account.more(Spent(scope=Scope.RUN, tokens=130, cost=0.5)) == (30, 0.5)
    assert account.more(Spent(scope=Scope.RUN, tokens=150, cost=0.75)) == (20, 0.25)
    assert account.more(Spent(scope=Scope.RUN, tokens=10)) == (0, 0.0), "nothing is paid back"


def test_the_total_of_a_session_does_not_count_its_earlier_runs_again() -> None:
    account = Account(before=600)
    assert account.more(Spent(scope=Scope.SESSION, tokens=750)) == (150, 0.0)
    assert account.session_tokens == 750


@pytest.mark.parametrize(
    ("message", "status", "kind", "word"),
    [
        ("Not logged in · Please run /login", None, Unavailable, "/login"),
        ("authentication_failed (401)", 401, Unavailable, "not logged in"),
        ("unexpected status 401 Unauthorized: bad, url: http://127.0.0.1:1/v1", None, Unavailable, "not logged in"),
        ("API Error: Repeated 529 Overloaded errors.", None, Unavailable, "overloaded"),
        ("exceeded retry limit, last status: 429 Too Many Requests", None, Unavailable, "limit"),
        ("We're currently experiencing high demand, which may cause temporary errors.", None, Unavailable, "limit"),
        ("API Error: 500 scripted trouble", None, Unavailable, "has an error"),
        ("Cannot connect to API: Unable to connect.", None, Unavailable, "could not reach"),
        ("Unable to connect to API (ConnectionRefused)", None, Unavailable, "could not reach"),
        ("connect ECONNREFUSED 127.0.0.1:9", None, Unavailable, "could not reach"),
        ("Connection refused (os error 111)", None, Unavailable, "could not reach"),
        ("stream disconnected before completion: failed to lookup address information", None, Unavailable, "could not reach"),
        ("Prompt is too long", 400, Failed, "context"),
        ("error_max_turns: Reached maximum number of turns (3)", None, Failed, "turns"),
        ("The model refused: no.", None, Failed, "refused"),
        ("scripted trouble", 400, Failed, "scripted trouble"),
        ("", None, Failed, "no word why"),
    ],
)
def test_a_vendors_error_is_named_in_our_words(message: str, status: int | None, kind: type[Exception], word: str) -> None:
    error = error_for("claude", message, status)
    assert type(error) is kind
    assert word in str(error)
    assert error.advice


def test_a_session_that_is_gone_is_known_by_each_vendors_words() -> None:
    assert is_session_gone("No conversation found with session ID: 3b44")
    assert is_session_gone("Error: thread/resume failed: no rollout found for thread id 01a1 (code -32600)")
    assert is_session_gone("Error: Session not found")
    assert not is_session_gone("File not found")
