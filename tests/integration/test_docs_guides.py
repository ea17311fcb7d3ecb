"""The commands of the README, the tutorial and the guides work as documented."""

from pathlib import Path

import pytest
from documented_commands import BOARD_GUIDES, SERVER_GUIDES, Shell, in_documents, model, run_document, shell, template  # noqa: F401 - fixtures


@pytest.mark.timeout(240)
@in_documents(lambda name: name not in BOARD_GUIDES | SERVER_GUIDES)
def test_documented_commands_print_the_documented_output(document: Path, shell: Shell) -> None:  # noqa: F811 - a fixture
    run_document(document, shell)
