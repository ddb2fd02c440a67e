"""What a failed call means and how long to wait."""

import pytest

from skillforge.core.retry import RetryPolicy, judge, plain


@pytest.mark.parametrize(
    ("kind", "causes", "status", "said", "pile"),
    [
        ("RateLimitError", (), 429, "slow down", "again"),
        ("RateLimitError", (), 429, "You exceeded your current quota", "infra"),
        ("InternalServerError", (), 500, "oops", "again"),
        ("APIError", (), 529, "overloaded", "again"),
        ("Timeout", ("ReadTimeout",), 408, "timed out", "agent"),
        ("Timeout", ("APIStatusError", "HTTPStatusError"), 504, "gateway", "again"),
        ("Timeout", ("ConnectTimeout",), 408, "no route", "again"),
        ("TimeoutError", (), 0, "", "infra"),
        ("ContextWindowExceededError", (), 400, "too long", "agent"),
        ("ContentPolicyViolationError", (), 400, "no", "agent"),
        ("AuthenticationError", (), 401, "bad key", "config"),
        ("NotFoundError", (), 404, "no model", "config"),
        ("UnsupportedParamsError", (), 400, "temperature", "config"),
        ("BadRequestError", (), 400, "LLM Provider NOT provided", "config"),
        ("BadRequestError", (), 400, "odd", "infra"),
        ("UnprocessableEntityError", (), 422, "odd", "infra"),
    ],
)
def test_each_failure_has_its_pile(kind, causes, status, said, pile):
    """Errors are sorted by class, cause and status."""
    assert judge(kind=kind, causes=causes, status=status, said=said).pile == pile


@pytest.mark.parametrize(
    ("kind", "status", "cause"),
    [
        ("Timeout", 408, "timeout"),
        ("ContextWindowExceededError", 400, "context_overflow"),
        ("ContentPolicyViolationError", 400, "content_filter"),
        ("RateLimitError", 429, "other"),
    ],
)
def test_what_the_agent_failed_by_is_told(kind, status, cause):
    """Reports count a full context apart from a timeout; other trouble is no agent's."""
    assert judge(kind=kind, causes=(), status=status, said="no").cause == cause


REFUSED = ("APIConnectionError", "ConnectError")
STATUS = ("RateLimitError", "HTTPStatusError")


@pytest.mark.parametrize(
    ("kind", "causes", "status", "billed"),
    [
        ("RateLimitError", STATUS, 429, False),
        ("BadRequestError", STATUS, 400, False),
        ("AuthenticationError", STATUS, 401, False),
        ("ContextWindowExceededError", STATUS, 400, False),
        ("ContextWindowExceededError", (), 400, False),
        ("InternalServerError", STATUS, 500, False),
        ("ServiceUnavailableError", STATUS, 503, False),
        ("InternalServerError", REFUSED, 500, False),
        ("Timeout", ("APITimeoutError", "ConnectTimeout"), 408, False),
        ("BadGatewayError", STATUS, 502, True),
        ("Timeout", STATUS, 504, True),
        ("Timeout", STATUS, 408, True),
        ("Timeout", ("APITimeoutError", "ReadTimeout"), 408, True),
        ("InternalServerError", ("APIConnectionError", "RemoteProtocolError"), 500, True),
        ("InternalServerError", ("JSONDecodeError",), 500, True),
        ("_NoReplyError", (), 502, True),
        ("TimeoutError", (), 0, True),
    ],
)
def test_what_may_have_been_billed(kind, causes, status, billed):
    """Only a status of the server's own, or no connection, says that nothing was served."""
    assert judge(kind=kind, causes=causes, status=status, said="").billed is billed


@pytest.mark.parametrize(("status", "busy"), [(429, True), (503, True), (529, True), (500, False)])
def test_which_statuses_ask_for_fewer_calls(status, busy):
    """Overload slows all calls down; other trouble does not."""
    assert judge(kind="APIError", causes=STATUS, status=status, said="").busy is busy


def test_a_busy_endpoint_is_waited_for_at_least_a_minute():
    """Eight retries outlast a limit per minute whatever the jitter (stanfordnlp/dspy#1753)."""
    policy = RetryPolicy()
    pauses = [policy.pause(n, None, 0.0, busy=True) for n in range(policy.busy_retries)]

    assert len(pauses) == 8
    assert sum(pauses) >= 60
    assert policy.pause(8, None, 0.0, busy=True) is None
    assert policy.pause(4, None, 0.0) is None


def test_pauses_double_up_to_a_limit():
    """Without jitter the pauses are backoff·2^n, capped."""
    policy = RetryPolicy(retries=5, backoff=1.0, max_wait=5.0)

    assert [policy.pause(n, None, 1.0) for n in range(6)] == [1.0, 2.0, 4.0, 5.0, 5.0, None]


def test_jitter_halves_a_pause_at_most():
    """The pause lies between half and all of its length."""
    assert RetryPolicy(backoff=2.0).pause(0, None, 0.0) == 1.0


def test_a_wait_that_was_asked_for_is_never_undercut():
    """A server's wish counts up to the limit; beyond it the call ends."""
    policy = RetryPolicy(max_wait=10.0)

    assert policy.pause(0, 9.0, 0.0) == 9.0
    assert policy.pause(0, 11.0, 0.0) is None


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("litellm.RateLimitError: RateLimitError: OpenAIException - Slow\n down", "Slow down"),
        ("litellm.Timeout: Timeout Error: OpenAIException - late", "late"),
        ("Incorrect key: sk-proj-abc123DEF.", "Incorrect key: [key]."),
        ("gsk_abcdefghij and AIza-Sy12345678", "[key] and [key]"),
        ("plain words", "plain words"),
    ],
)
def test_messages_are_plain_and_hold_no_key(said, shown):
    """A message is one line without wrappers' names or anything that looks like a key."""
    assert plain(said) == shown
