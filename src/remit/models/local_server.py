"""Process of one local model: llama.cpp's server (xllamacpp) on loopback, behind a key. Started by `local`.

One line of JSON on standard input names the model; one line on standard output gives its address, or the fault. It ends when its standard
input is closed, so with the process that started it."""

import json
import os
import sys
import threading
import urllib.request
from typing import Any

from remit.system.processes import die_with_parent


def main() -> None:
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    die_with_parent(order["parent"])
    answers = os.dup(1)
    os.dup2(2, 1)  # output of the library is not an answer
    threading.Thread(target=_exit_with_input, daemon=True).start()
    server, answer = _start(order)
    os.write(answers, (json.dumps(answer) + "\n").encode())
    os.close(answers)
    if server is not None:
        threading.Event().wait()
    os._exit(1)  # threads of the library may still run


def _exit_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _start(order: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    try:
        import xllamacpp  # type: ignore[import-untyped]

        server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), order))
        url = server.listening_address
        request = urllib.request.Request(f"{url}/props", headers={"Authorization": f"Bearer {order['key']}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
            facts = json.load(response)
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        return None, {"error": str(error)}
    has_tools = "tools" in str(facts.get("chat_template", ""))
    return server, {"url": url, "context_tokens": facts["default_generation_settings"]["n_ctx"], "has_tools": has_tools}


def _parameters(parameters: Any, order: dict[str, Any]) -> Any:
    parameters.model.path = order["file"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [order["key"]]
    parameters.n_ctx = order["context_tokens"]
    parameters.n_predict = max(256, order["context_tokens"] // 4)
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = max(1, min(8, (os.cpu_count() or 1) - 1))
    parameters.n_threads_http = 3
    parameters.cache_ram_mib = 256
    parameters.sampling.temp = 0.3  # small models lose focus at the server's 0.8
    parameters.sampling.penalty_repeat = 1.1  # and repeat themselves without a penalty
    parameters.use_jinja = True
    parameters.offline = True
    parameters.ui = parameters.endpoint_slots = False
    parameters.verbosity = 1
    return parameters


if __name__ == "__main__":
    main()
