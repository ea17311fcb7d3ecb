"""The patterns of `risky`, by language: a name, a severity, the pattern, what is wrong, what to do. Every repetition is bounded."""

import re
from dataclasses import dataclass

from remit.agents.builtin.coder.review.findings import Severity

H, M, L = Severity.HIGH, Severity.MEDIUM, Severity.LOW


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    severity: Severity
    pattern: re.Pattern[str]
    message: str
    suggestion: str
    in_strings: bool = False
    """The pattern speaks of what stands in a string."""


def _rule(name: str, severity: Severity, pattern: str, message: str, suggestion: str, *, in_strings: bool = False) -> Rule:
    return Rule(name, severity, re.compile(pattern), message, suggestion, in_strings)


_SHELL_WORDS = "Text that comes from elsewhere becomes commands."
_JS = (
    _rule(
        "eval",
        H,
        r"(?<![.\w])eval\s?\(|\bnew Function\s?\(",
        "Code is made of text and run.",
        "Parse the data, or look the function up in a table.",
    ),
    _rule(
        "inner-html",
        M,
        r"\.(?:inner|outer)HTML\s?\+?=(?!=)|\.insertAdjacentHTML\s?\(|\bdocument\.write(?:ln)?\s?\(|\bdangerouslySetInnerHTML\b",
        "HTML is put into the page as it is: what a user wrote can run there.",
        "Set textContent, or clean the HTML first.",
    ),
    _rule(
        "shell",
        H,
        r"(?:\bchild_process\b.{0,60}|\bcp\.|(?<![.\w]))exec(?:Sync)?\s?\(\s?(?:`[^`]{0,500}\$\{|[\w.]{1,60}\s?\+|[\"'][^\"']{0,300}[\"']\s?\+)",
        f"A shell command is put together. {_SHELL_WORDS}",
        "Use execFile or spawn with a list of arguments.",
        in_strings=True,
    ),
    _rule(
        "no-verify",
        H,
        r"\brejectUnauthorized\s?:\s?false\b|NODE_TLS_REJECT_UNAUTHORIZED",
        "Certificates are not checked.",
        "Trust the CA instead (ca: …).",
    ),
    _rule(
        "weak-random",
        M,
        r"(?i)(?:token|secret|passw|nonce|session\w{0,8})\w{0,20}\s?[:=].{0,60}Math\.random\s?\(",
        "Math.random is no source of secrets.",
        "Use crypto.randomUUID or crypto.randomBytes.",
    ),
    _rule("weak-hash", L, r"createHash\s?\(\s?[\"'](?:md5|sha1)[\"']", "MD5 and SHA-1 can be forged.", "Use sha256.", in_strings=True),
    _rule(
        "sql",
        H,
        r"(?i)\.(?:query|execute|raw)\s?\(\s?`\s?(?:select|insert|update|delete)\b[^`]{0,800}\$\{",
        "SQL is put together from text.",
        "Use placeholders and hand the values over beside it.",
        in_strings=True,
    ),
)
_C = (
    _rule(
        "unbounded-copy",
        H,
        r"(?<![.\w>])(?:gets|strcpy|strcat|sprintf|vsprintf|stpcpy)\s?\(",
        "It writes without regard to the size of the buffer.",
        "Use the bounded form (fgets, snprintf, strlcpy) and check its result.",
    ),
    _rule(
        "shell",
        H,
        r"(?<![.\w>:])(?:system|popen)\s?\(\s?(?![\"'][^\"']{0,300}[\"']\s?[,)])",
        f"A shell is started. {_SHELL_WORDS}",
        "Use execve or posix_spawn with a list.",
        in_strings=True,
    ),
    _rule(
        "format-string",
        H,
        r"(?<![.\w>])(?:printf|syslog)\s?\(\s?[A-Za-z_]\w{0,60}\s?\)",
        "A variable is used as the format.",
        'Write printf("%s", value).',
    ),
    _rule("scanf", H, r"scanf\s?\([^)\n]{0,200}%s", "%s reads without a limit.", "Give a width: %63s.", in_strings=True),
    _rule("mktemp", M, r"(?<![.\w>])(?:mktemp|tmpnam|tempnam)\s?\(", "Between name and use somebody can put a file there.", "Use mkstemp."),
)
RULES: dict[str, tuple[Rule, ...]] = {
    "javascript": _JS,
    "go": (
        _rule(
            "shell",
            H,
            r"exec\.Command(?:Context)?\s?\([^)\n]{0,80}[\"`](?:/bin/)?(?:ba)?sh[\"`]\s?,\s?[\"`]-c[\"`]\s?,\s?(?![\"`][^\"`]{0,300}[\"`]\s?\))",
            f"A shell is started. {_SHELL_WORDS}",
            "Call the program itself, with a list of arguments.",
            in_strings=True,
        ),
        _rule("no-verify", H, r"\bInsecureSkipVerify\s?:\s?true\b", "Certificates are not checked.", "Set RootCAs instead."),
        _rule(
            "sql",
            H,
            r"(?i)\.(?:Query|QueryRow|Exec)(?:Context)?\s?\([^)\n]{0,80}(?:fmt\.Sprintf|\"[^\"]{0,300}\"\s?\+)",
            "SQL is put together from text.",
            "Use placeholders ($1, ?) and hand the values over beside it.",
            in_strings=True,
        ),
        _rule("weak-hash", L, r"\b(?:md5|sha1)\.(?:New|Sum)\b", "MD5 and SHA-1 can be forged.", "Use crypto/sha256."),
        _rule("unsafe", M, r"\bunsafe\.Pointer\b", "It goes around the type system.", "Say in a comment why it is sound."),
        _rule(
            "html",
            M,
            r"\btemplate\.(?:HTML|JS|URL)\s?\((?!\s?[\"`])",
            "The template will not escape this.",
            "Hand the text over and let the template escape it.",
        ),
    ),
    "rust": (
        _rule(
            "unsafe",
            M,
            r"\bunsafe\s?(?:\{|fn\b|impl\b)",
            "An unsafe block without a word why it is sound.",
            "Write a `// SAFETY:` comment above it, or do without.",
        ),
        _rule(
            "transmute",
            M,
            r"\btransmute\s?(?:::<|\()",
            "transmute checks nothing but sizes.",
            "Use a conversion that checks (TryFrom, bytemuck).",
        ),
        _rule(
            "no-verify",
            H,
            r"\bdanger_accept_invalid_(?:certs|hostnames)\s?\(\s?true",
            "Certificates are not checked.",
            "Add the CA as a root certificate.",
        ),
        _rule(
            "shell",
            H,
            r"Command::new\s?\(\s?\"(?:/bin/)?(?:ba)?sh\"\s?\)(?!.{0,60}-c\",? ?\"[^\"]{0,300}\")",
            f"A shell is started. {_SHELL_WORDS}",
            "Start the program itself and give arguments one by one.",
            in_strings=True,
        ),
        _rule("unfinished", M, r"\b(?:todo|unimplemented)!\s?\(", "It panics when it is reached.", "Finish it, or return an error."),
    ),
    "java": (
        _rule(
            "shell",
            H,
            r"\bRuntime\.getRuntime\(\)\.exec\s?\((?!\s?new String)",
            f"A command line is split by blanks. {_SHELL_WORDS}",
            "Use ProcessBuilder with a list.",
        ),
        _rule(
            "deserialise",
            H,
            r"\bnew ObjectInputStream\s?\(|\.readObject\s?\(\s?\)|\bXMLDecoder\s?\(",
            "What is read there decides what code runs.",
            "Use a data format (JSON), or an ObjectInputFilter.",
        ),
        _rule(
            "sql",
            H,
            r"(?i)\.(?:execute(?:Query|Update)?|prepareStatement)\s?\(\s?\"[^\"]{0,400}\"\s?\+",
            "SQL is put together from text.",
            "Use placeholders of a PreparedStatement.",
            in_strings=True,
        ),
        _rule(
            "weak-hash",
            L,
            r"MessageDigest\.getInstance\s?\(\s?\"(?:MD5|SHA-?1)\"",
            "MD5 and SHA-1 can be forged.",
            "Use SHA-256.",
            in_strings=True,
        ),
        _rule(
            "no-verify",
            H,
            r"(?i)setHostnameVerifier\s?\(.{0,80}(?:->\s?true|ALLOW_ALL|NoopHostnameVerifier)|\bTrustAll\w{0,20}",
            "Certificates or host names are not checked.",
            "Trust the CA by a key store.",
        ),
        _rule(
            "stack-trace", L, r"\.printStackTrace\s?\(\s?\)", "The error goes to standard error and is lost.", "Log it, or let it go up."
        ),
    ),
    "c": _C,
    "shell": (
        _rule(
            "download-and-run",
            H,
            r"\b(?:curl|wget)\b[^|\n]{0,500}\|\s?(?:sudo\s)?(?:[a-z/]{0,20}/)?(?:ba|z|da)?sh\b",
            "What is downloaded runs unseen.",
            "Download it, check its digest, then run it.",
        ),
        _rule(
            "insecure-download",
            M,
            r"\bcurl\b[^|\n]{0,300}\s(?:-k|--insecure)\b|\bwget\b[^|\n]{0,300}--no-check-certificate",
            "Certificates are not checked.",
            "Trust the CA instead.",
        ),
        _rule("open-to-all", M, r"\bchmod\s(?:-R\s)?0?777\b", "Everybody may write it.", "Give no more than is needed: 755, or 644."),
        _rule(
            "eval",
            M,
            r"(?:^|[;&|]\s?)eval\s.{0,200}\$",
            "What a variable holds is run as code.",
            'Use an array and call it: "${command[@]}".',
        ),
        _rule(
            "remove-variable",
            H,
            r"\brm\s-[a-z]{0,4}r[a-z]{0,4}\s(?:--\s)?[\"']?/?\$\{?\w{1,60}\}?[\"']?/(?:\*|\s|$)",
            "If the variable is empty, everything is removed.",
            "Write ${name:?}, which stops there.",
        ),
    ),
    "docker": (
        _rule(
            "download-and-run",
            H,
            r"\b(?:curl|wget)\b[^|\n]{0,500}\|\s?(?:sudo\s)?(?:ba|z|da)?sh\b",
            "What is downloaded runs unseen.",
            "Download it, check its digest, then run it.",
        ),
        _rule(
            "latest",
            L,
            r"(?i)^FROM\s\S{1,200}:latest\b|^FROM\s[^\s:@]{1,200}(?:\s|$)",
            "Tomorrow it is another image.",
            "Name a version, or a digest.",
        ),
        _rule("open-to-all", M, r"\bchmod\s(?:-R\s)?0?777\b", "Everybody may write it.", "Give no more than is needed."),
    ),
    "yaml": (
        _rule(
            "workflow-injection",
            H,
            r"\$\{\{\s?github\.(?:event\.(?:issue|pull_request|comment|review|head_commit|discussion)[\w.]{0,40}\.?(?:title|body|message|ref|label|name|email)|head_ref)",
            "Whoever writes that text runs commands in the workflow.",
            'Hand it over by `env:` and use "$NAME" in the script.',
        ),
        _rule(
            "workflow-rights",
            M,
            r"^\s{0,20}pull_request_target\s?:",
            "This runs strangers' changes with the rights of the repository.",
            "Use pull_request, or check out nothing of theirs.",
        ),
    ),
    "sql": (
        _rule(
            "drop",
            M,
            r"(?i)^\s{0,40}(?:drop\s(?:table|database|schema)|truncate)\b",
            "Data is removed for good.",
            "Say how it is brought back, or keep a copy.",
        ),
        _rule(
            "without-where",
            H,
            r"(?i)^\s{0,40}(?:delete\sfrom\s\S{1,100}|update\s\S{1,100}\sset\s[^;]{1,300})\s?;\s{0,9}$(?<!where)",
            "It speaks of every row.",
            "Add a WHERE.",
        ),
    ),
    "ruby": (
        _rule(
            "eval",
            H,
            r"(?<![.\w])(?:eval|instance_eval|class_eval)\s?[( ]\s?[^\s{]",
            "Code is made of text and run.",
            "Use public_send with a list of allowed names.",
        ),
        _rule(
            "deserialise",
            H,
            r"\bMarshal\.load\b|\bYAML\.load\b(?!_file)",
            "What is read there decides what objects are made.",
            "Use YAML.safe_load or JSON.",
        ),
        _rule("inner-html", M, r"\.html_safe\b|\braw\s?\(", "HTML is put into the page as it is.", "Let the template escape it."),
    ),
    "php": (
        _rule(
            "eval",
            H,
            r"(?<![\w>:])(?:eval|assert|create_function)\s?\(",
            "Code is made of text and run.",
            "Look the function up in a table.",
        ),
        _rule(
            "shell",
            H,
            r"(?<![\w>:])(?:exec|system|passthru|shell_exec|popen)\s?\([^)\n]{0,200}\$",
            f"A shell command is put together. {_SHELL_WORDS}",
            "Use escapeshellarg, or proc_open with a list.",
        ),
        _rule("deserialise", H, r"(?<![\w>:])unserialize\s?\(", "What is read there decides what objects are made.", "Use json_decode."),
    ),
}
_UNPARSED_PYTHON = (
    _rule(
        "eval",
        H,
        r"(?<![.\w])(?:eval|exec)\s?\((?!\s?[\"'])",
        "eval and exec run whatever the text says.",
        "Use ast.literal_eval for data, or a table of functions.",
    ),
    _rule(
        "shell",
        H,
        r"\bos\.(?:system|popen)\s?\(|\bshell\s?=\s?True\b|\bcreate_subprocess_shell\s?\(|\bsubprocess\.get(?:status)?output\s?\(",
        f"A shell reads the command. {_SHELL_WORDS}",
        "Give a list of arguments, without a shell.",
    ),
    _rule(
        "pickle",
        M,
        r"\b(?:pickle|dill|cloudpickle|marshal)\.loads?\s?\(|\bjoblib\.load\s?\(",
        "It runs code that the data names.",
        "Use JSON, or read only what you wrote and signed yourself.",
    ),
    _rule(
        "yaml-load",
        H,
        r"\byaml\.(?:unsafe_load|full_load|load)(?:_all)?\s?\((?!.{0,200}Safe)",
        "yaml.load makes any object that the text names.",
        "Use yaml.safe_load.",
    ),
    _rule(
        "no-verify",
        H,
        r"\bverify\s?=\s?False\b|_create_unverified_context\b|\bCERT_NONE\b|\bcheck_hostname\s?=\s?False\b",
        "Certificates are not checked.",
        "Trust the CA instead, by its file.",
    ),
    _rule(
        "sql",
        H,
        r"(?i)\.execute(?:many|script)?\s?\(\s?f[\"']{1,3}\s{0,20}(?:select|insert|update|delete|drop)\b.{0,400}\{",
        "SQL is put together from text: whoever writes the value writes the query.",
        "Use placeholders and hand the values over beside it.",
        in_strings=True,
    ),
    _rule("mktemp", M, r"\btempfile\.mktemp\s?\(", "Between name and use somebody can put a file there.", "Use mkstemp."),
)
RULES |= {"python": _UNPARSED_PYTHON}
"""Python is judged by its syntax tree; by these only where it has none, because it does not parse."""
RULES |= {"typescript": _JS, "tsx": _JS, "html": _JS, "cpp": _C}
