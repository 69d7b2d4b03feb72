"""What root inside a node keeps: fourteen capabilities and a system-call filter.

Leans on linux.py. Laws: every process of a node, its init and every command entered later, passes `confine` before
exec, so that nothing in a node ever holds more than this; the filter is rendered purely and is the same for all.

Strict on purpose: no mounts, no namespaces, no bpf, perf, keyrings, io_uring or userfaultfd, no socket families but
unix, inet, inet6 and harmless netlink (vsock is not namespaced: it leads straight to the hypervisor), no i386 or x32
entry points, and clone3 answers ENOSYS so that libc falls back to clone, whose flags a filter can read.
"""

from __future__ import annotations

import struct
from typing import Final

from muster.hostd import linux

# In the kernel's own order: the position is the number.
_CAPABILITIES: Final = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner"),
    *("sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice"),
    *("sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap"),
    *("mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf"),
    "checkpoint_restore",
)
KEPT: Final = frozenset(
    {"chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service"}
    | {"net_raw", "sys_chroot", "sys_ptrace", "audit_write", "setfcap"}
)
_DENIED: Final = {
    **{"kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176},
    **{"bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249},
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_by_handle_at": 304},
    **{"swapon": 167, "swapoff": 168, "reboot": 169, "syslog": 103, "settimeofday": 164, "clock_settime": 227},
    **{"clock_adjtime": 305, "adjtimex": 159, "acct": 163, "quotactl": 179, "quotactl_fd": 443, "iopl": 172},
    **{"ioperm": 173, "fanotify_init": 300, "vhangup": 153, "lookup_dcookie": 212, "nfsservctl": 180},
    **{"modify_ldt": 154, "uselib": 134, "ustat": 136, "sysfs": 139},
    **{"unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "open_tree": 428},
    **{"move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442},
    **{"open_tree_attr": 467},
}
_CLONE, _CLONE3, _IOCTL, _SOCKET, _SOCKETPAIR = 56, 435, 16, 41, 53
_ARCH_X86_64: Final = 0xC000003E
_X32_BIT: Final = 0x40000000
_EVERY_CLONE_NEW: Final = 0x7E020080
_TIOCSTI: Final = 0x5412

_EPERM, _ENOSYS, _EPROTONOSUPPORT = 1, 38, 93
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW: Final = 0x7FFF0000
_NR, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value & 0xFFFFFFFF)


def _refuse(error: int) -> bytes:
    return _op(_RETURN, 0x00050000 | error)


def _denied(number: int, error: int) -> list[bytes]:
    return [_op(_EQUAL, number, 0, 1), _refuse(error)]


def _denied_when(number: int, argument: int, test: int, value: int) -> list[bytes]:
    """Refuse the call when the low word of an argument matches; otherwise allow it at once."""
    body = [_op(_LOAD, argument), _op(test, value, 0, 1), _refuse(_EPERM), _op(_RETURN, _ALLOW)]
    return [_op(_EQUAL, number, 0, len(body)), *body]


def _socket_families(number: int) -> list[bytes]:
    """unix, inet, inet6; netlink route, sock_diag, uevent, generic. Audit answers as a kernel without it would."""
    families = [(1, "allow"), (2, "allow"), (10, "allow")]
    protocols = [(0, "allow"), (4, "allow"), (15, "allow"), (16, "allow"), (9, "no audit")]
    # load family; families; is it netlink?; load protocol; protocols; refuse; no audit; allow
    after_families = 1 + len(families)
    refuse_at = after_families + 2 + len(protocols)
    ends = {"refuse": refuse_at, "no audit": refuse_at + 1, "allow": refuse_at + 2}
    body = [_op(_LOAD, _ARG0)]
    body += [_op(_EQUAL, value, ends[end] - at - 1, 0) for at, (value, end) in enumerate(families, start=1)]
    body += [_op(_EQUAL, 16, 0, ends["refuse"] - after_families - 1), _op(_LOAD, _ARG2)]
    body += [
        _op(_EQUAL, value, ends[end] - at - 1, 0)
        for at, (value, end) in enumerate(protocols, start=after_families + 2)
    ]
    body += [_refuse(_EPERM), _refuse(_EPROTONOSUPPORT), _op(_RETURN, _ALLOW)]
    return [_op(_EQUAL, number, 0, len(body)), *body]


def filter_program() -> bytes:
    """The seccomp program, rendered."""
    program = [_op(_LOAD, _ARCH), _op(_EQUAL, _ARCH_X86_64, 1, 0), _refuse(_ENOSYS)]
    program += [_op(_LOAD, _NR), _op(_AT_LEAST, _X32_BIT, 0, 1), _refuse(_ENOSYS)]
    for number in sorted(_DENIED.values()):
        program += _denied(number, _EPERM)
    program += _denied(_CLONE3, _ENOSYS)
    program += _denied_when(_CLONE, _ARG0, _ANY_BIT, _EVERY_CLONE_NEW)
    program += _denied_when(_IOCTL, _ARG1, _EQUAL, _TIOCSTI)
    program += _socket_families(_SOCKET) + _socket_families(_SOCKETPAIR)
    program += [_op(_RETURN, _ALLOW)]
    return b"".join(program)


# Rendered at import: after the root has changed, nothing more may be computed from files.
_FILTER: Final = filter_program()


def confine() -> None:
    """Drop all but the kept capabilities and install the filter. Caller is root of the node, about to exec."""
    kept = 0
    for number, name in enumerate(_CAPABILITIES):
        if name in KEPT:
            kept |= 1 << number
        else:
            linux.drop_from_bounding_set(number)
    for unknown in range(len(_CAPABILITIES), 64):
        linux.drop_from_bounding_set(unknown)
    linux.install_filter(_FILTER)
    linux.capset(kept)
