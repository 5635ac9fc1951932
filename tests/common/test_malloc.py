import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from mjp.common.malloc import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(15):
    torch.ones(20_000_000)  # 80 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(20_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
def test_freed_memory_is_used_again_instead_of_fetched_from_the_kernel() -> None:
    assert 10 * faults("keep") < faults("leave")
