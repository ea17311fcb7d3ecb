"""The process in which a local model runs: xllamacpp's server, which speaks OpenAI's protocol, on loopback, behind a key.

Started by `local` alone. Its order comes as one line of JSON on standard input, its answer goes as one line to standard output: where it
listens, or what went wrong. It ends when standard input does, that is with whoever started it, however that one ended; where the kernel
can tell (Linux), also while it is still loading. Nothing here is asked over the network: weights are files.
"""

import json
import os
import sys
import threading
from typing import Any

from remit.system.prctl import die_with_parent

HTTP_THREADS = 3
PROMPT_CACHE_MEGABYTES = 256
"""What was read before need not be read again; the server's own limit is 8 GB."""
TEMPERATURE = 0.3
"""Where the question says nothing: small models keep to the matter better than at the server's 0.8."""
REPEAT_PENALTY = 1.1
"""Small models fall into saying the same for ever; this little keeps them from most of it, and harms no quoting."""
ERRORS_ONLY = 1


def main() -> None:
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    die_with_parent(order["parent"])
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever is printed below us is no answer
    threading.Thread(target=_end_with_input, daemon=True).start()
    server, answer = _serve(order)
    os.write(answers, (json.dumps(answer) + "\n").encode())
    os.close(answers)
    if server is None:
        os._exit(1)
    threading.Event().wait()


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _serve(order: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    try:
        import xllamacpp  # type: ignore[import-untyped]
    except ImportError as error:
        return None, {"error": f"xllamacpp cannot be loaded: {error}", "missing": True}
    parameters = _parameters(xllamacpp.CommonParams(), order)
    try:
        server = xllamacpp.Server(parameters)
        return server, {"url": server.listening_address}
    except RuntimeError as error:
        return None, {"error": str(error)}


def _parameters(parameters: Any, order: dict[str, Any]) -> Any:
    parameters.model.path = order["file"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [order["key"]]
    parameters.n_ctx = order["context_tokens"]
    parameters.n_predict = order["reply_tokens"]
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = order["threads"]
    parameters.n_threads_http = HTTP_THREADS
    parameters.cache_ram_mib = PROMPT_CACHE_MEGABYTES
    parameters.sampling.temp = TEMPERATURE
    parameters.sampling.penalty_repeat = REPEAT_PENALTY
    parameters.use_jinja = True
    parameters.offline = True
    parameters.ui = parameters.endpoint_slots = False
    parameters.verbosity = ERRORS_ONLY
    return parameters


if __name__ == "__main__":
    main()
