"""A little made-up program in four languages, and questions that only its code answers, with the words the first quotation must hold."""

import re
from pathlib import Path

CODE = dict(re.findall(r"^=== (\S+)\n(.*?)(?=^=== |\Z)", Path(__file__).with_suffix(".txt").read_text(), flags=re.MULTILINE | re.DOTALL))
"""By path."""

CODE_QUESTIONS = {
    "How does kestrel decide which loop policy to use on Windows?": "DefaultLoopPolicy = WindowsProactorLoopPolicy",
    "How many connections does the connection pool allow by default?": "max_connections: int | None = 12,",
    "What is the maximum number of headers?": "MAXHEADERS = 64",
    "What is the default receive window of a connection that is lent?": "_DEFAULT_WINDOW = 2 ** 18  # 256 KiB",
    "How many workers are there by default?": "return min(24, (os.cpu_count() or 1) + 3)",
    "What is the exit code of a UsageError?": "exit_code = 2",
    "Which class does ChecksumMismatch derive from?": "class ChecksumMismatch(KestrelError, ValueError):",
    "Which port does kestrel listen on by default?": "default=7070",
    "Which environment variable turns colours off?": 'USE_COLOR = "KESTREL_NO_COLOR" not in os.environ',
    "What is the default limit of a body?": "? 102400 // 100kb",
    "Where are the views looked up by default?": "this.set('views', resolve('templates'))",
    "When is the X-Served-By header sent?": "if (this.enabled('x-served-by')) {",
    "How often is a peer tried?": "const MaxAttempts = 6",
    "Which rust version is needed?": 'rust-version = "1.74"',
    "What does get_loop_policy return?": "def get_loop_policy():",
}
