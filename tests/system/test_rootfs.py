"""Making the nodes' root file system: whatever ends it, nothing stays mounted and nobody goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A stand-in for debootstrap at its most inconvenient moment: /proc is mounted, and much is still to do.
MAKER = """
import sys
from muster.hostd.rootfs import _run
with open(sys.argv[1] + "/log", "wb") as out:
    _run(["sh", "-c", f"mount -t proc proc {sys.argv[1]}/proc && echo > {sys.argv[1]}/mounted && sleep 600"], out)
"""


@pytest.mark.usefixtures("machine")
def test_an_interrupted_maker_leaves_no_mount_and_no_process(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    maker = subprocess.Popen([sys.executable, "-c", MAKER, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "mounted").exists():
            assert maker.poll() is None, (tmp_path / "log").read_text()
        maker.send_signal(signal.SIGINT)
        assert maker.wait(30) != 0
    finally:
        maker.kill()
        maker.wait()
        left = str(tmp_path) in Path("/proc/mounts").read_text()
        if left:
            subprocess.run(["umount", "--lazy", tmp_path / "proc"], check=False)
    assert not left
    alive = subprocess.run(["pgrep", "-f", f"mount -t proc proc {tmp_path}"], capture_output=True, check=False)
    assert alive.returncode == 1, alive.stdout
