"""Runs one program, holds it to its limits, and ends whatever it has started.

`skillforge.adapters.limited` starts this file as a script of its own, so that nothing of it runs
inside the process that holds ledger and models. It needs the standard library alone and starts
in some 20 ms. Its one argument is the descriptor of a socket: there it reads what to do, and then
reports the outcome, both marshalled; the end of file means "stop".

On Linux the program gets a user, PID and mount namespace of its own where the system allows it:
this process is then PID 1 there, everything outside the program's fresh folder is read-only, and
no process can outlive it. Where it cannot be had, this process becomes the subreaper of the
program's orphans and ends them by their parenthood; on other systems, its process group is.
"""

# Neither pathlib nor contextlib: each would add to the start of every program.
# ruff: noqa: PTH112, PTH123, PTH208, SIM105

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Order = dict[str, Any]

REFUSED = 77
"""Exit code of the child in which the namespaces could not be set up."""

NEWNS, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_RDONLY = 442, -100, 0x8000, 1
PDEATHSIG, CAPBSET_DROP, SUBREAPER, NO_NEW_PRIVS = 1, 24, 36, 38
TICK = 0.2
"""Seconds between two looks at the size of the folder and of the processes."""

SHARED = "/dev/shm"  # noqa: S108 - mounted anew for each program

LINUX = sys.platform == "linux"
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> None:
    """Raise what a C function reports."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def prctl(option: int, value: int = 1) -> None:
    """Set an attribute of this process, where the kernel knows it."""
    libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """Mount a file system, or a folder a second time."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    check(libc.mount(*encoded, ctypes.c_ulong(flags), None if data is None else data.encode()))


def set_read_only(path: str, *, read_only: bool, flags: int = 0) -> None:
    """Make a mount read-only or writable, by mount_setattr(2) of Linux 5.12."""
    attributes = (ctypes.c_uint64 * 4)(ATTR_RDONLY * read_only, ATTR_RDONLY * (not read_only), 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    check(libc.syscall(MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, attributes, size))


def write(path: str, text: str) -> None:
    """Write a file of /proc."""
    with open(path, "w") as file:
        file.write(text)


def enter_namespaces(order: Order) -> None:
    """Leave the namespaces of the user; the user's own id stays what it is."""
    uid, gid = os.getuid(), os.getgid()
    check(libc.unshare(NEWUSER | NEWNS | NEWPID | (0 if order["network"] else NEWNET)))
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{uid} {uid} 1")
    write("/proc/self/gid_map", f"{gid} {gid} 1")


def arrange_mounts(order: Order) -> None:
    """Make everything but the fresh folder read-only, and hide what is not the program's."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    set_read_only("/", read_only=True, flags=AT_RECURSIVE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if os.path.isdir(SHARED):
        mount("tmpfs", SHARED, "tmpfs", MS_NOSUID | MS_NODEV, f"size={order['disk']}")
    for path in order["hidden"]:
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4096,mode=0555")
    mount(order["scratch"], order["scratch"], None, MS_BIND)
    set_read_only(order["scratch"], read_only=False)
    os.chdir(order["scratch"])  # not the folder below the mount


def raise_loopback() -> None:
    """Bring up 127.0.0.1 in a network namespace, for programs that talk to themselves."""
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def in_namespaces(order: Order) -> bool:
    """Supervise inside namespaces; return False if they cannot be had and nothing has run."""
    outer = os.fork()
    if outer:
        return os.waitstatus_to_exitcode(os.waitpid(outer, 0)[1]) != REFUSED
    try:
        prctl(PDEATHSIG, signal.SIGKILL)
        enter_namespaces(order)
        inner = os.fork()
        if inner:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 0xFF)
        prctl(PDEATHSIG, signal.SIGKILL)
        arrange_mounts(order)
        if not order["network"]:
            raise_loopback()
    except OSError:
        os._exit(REFUSED)
    supervise(order, "namespaces")
    os._exit(0)


def set_limits(order: Order, confinement: str) -> None:
    """Limit this process and what it starts."""
    limits = {"CORE": 0, "FSIZE": order["disk"], "CPU": order["cpu"]}
    limits["NOFILE"] = order["descriptors"]
    if not LINUX:  # there it is measured, for Node, Bun and Go reserve far more than they use
        limits["AS"] = order["memory"]
    if confinement == "namespaces":  # elsewhere it would count the user's other processes too
        limits["NPROC"] = order["processes"]
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None and most is not None:
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def become(order: Order, confinement: str, failed: int) -> None:
    """Turn this process into the program."""
    try:
        os.setsid()
        set_limits(order, confinement)
        if LINUX:
            prctl(PDEATHSIG, signal.SIGKILL)
            prctl(NO_NEW_PRIVS)
            if confinement == "namespaces":
                for capability in range(64):
                    prctl(CAPBSET_DROP, capability)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(order["workspace"])
        os.execvp(order["argv"][0], order["argv"])  # noqa: S606
    except OSError as error:
        os.write(failed, str(error.errno).encode())
    except BaseException as error:  # noqa: BLE001 - nothing may escape into the supervisor's own code
        os.write(2, repr(error).encode())
        os.write(failed, str(errno.EINVAL).encode())
    os._exit(127)


def start(order: Order, confinement: str) -> tuple[int, int]:
    """Fork the program; return its id, or the errno with which it could not be started."""
    seen, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(order, confinement, failed)
    os.close(failed)
    code = os.read(seen, 16)
    os.close(seen)
    return pid, int(code or 0)


def size_of(folder: str) -> int:
    """Return the bytes in a folder, holes included; what vanishes meanwhile counts nothing."""
    total, folders = 0, [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += max(found.st_size, found.st_blocks * 512, 512)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:
            continue
    return total


def descendants() -> set[int]:
    """Return the ids of all live processes below this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(name)}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X"):
            parents[int(name)] = int(parent)
    below, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        grown = bool(more)
        below |= more
    return below - {os.getpid()}


QUICK = "status", (b"RssAnon:", b"RssShmem:", b"VmSwap:")
EXACT = "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
"""A file of /proc/PID and rows of it. The second divides each page among those who share it, such
as a process and its forks, takes far longer to read, and may be refused to us."""


def memory_of(pid: int, *sources: tuple[str, tuple[bytes, ...]]) -> int:
    """Return the bytes of memory that a process has written to, by the first that can be read.

    What a runtime reserves and never touches, and programs and libraries that are mapped, count
    nothing: address spaces are no measure of either. Nor does a file in memory (memfd) that nobody
    maps.
    """
    for name, kinds in sources:
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                rows = [line.split() for line in file if line.startswith(kinds)]
        except OSError:
            continue
        return sum(int(row[1]) << 10 for row in rows)
    return 0


def holds_more(memory: int | None) -> bool:
    """Whether the processes below this one hold more memory than that."""
    if not LINUX or memory is None:
        return False
    found = descendants()
    if sum(memory_of(pid, QUICK) for pid in found) <= memory:
        return False
    return sum(memory_of(pid, EXACT, QUICK) for pid in found) > memory


def kill(function: Callable[[int, int], None], target: int) -> None:
    """Send SIGKILL to whom it still concerns."""
    try:
        function(target, signal.SIGKILL)
    except OSError:
        pass


def reap(ended: dict[int, int]) -> bool:
    """Collect ended children; return whether there are more."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True
            ended[pid] = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return False


def end_all(pid: int, ended: dict[int, int]) -> int:
    """End everything that is left and wait until it is gone; return how many processes it was."""
    reap(ended)
    left: set[int] = set()
    while True:
        if LINUX:
            found = descendants()
            left |= found
            for other in found:
                kill(os.kill, other)
        else:
            kill(os.killpg, pid)
        if not reap(ended):
            return len(left)
        time.sleep(0.002)


def oom_kills() -> int:
    """Return how often this machine has run out of memory since it was started."""
    try:
        with open("/proc/vmstat") as file:
            rows = dict(line.split() for line in file)
        return int(rows.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def watch(order: Order, pid: int, most: int, ended: dict[int, int]) -> str:
    """Wait until the program has ended or must be; return the limit that it passed, or ""."""
    control, (woken, wake), poll = order["control"], os.pipe(), select.poll()
    for descriptor in (control, woken):
        poll.register(descriptor, select.POLLIN)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    started = time.monotonic()
    checks: dict[str, Callable[[], bool]] = {
        "memory": lambda: holds_more(order["memory"]),
        "disk": lambda: size_of(order["scratch"]) > most,
    }
    due = dict.fromkeys(checks, started)
    while True:
        reap(ended)
        if pid in ended:
            return ""
        if time.monotonic() - started > order["timeout"]:
            return "timeout"
        for limit, is_passed in checks.items():
            now = time.monotonic()
            if now < due[limit]:
                continue
            if is_passed():
                return limit
            # A large tree takes long to look at, and is looked at less often.
            due[limit] = time.monotonic() + max(TICK, 5 * (time.monotonic() - now))
        patience = max(0.0, min(*due.values(), started + order["timeout"]) - time.monotonic())
        ready = [descriptor for descriptor, _ in poll.poll(1 + 1000 * patience)]
        if woken in ready:
            os.read(woken, 4096)
        if control in ready:
            return "asked"


def supervise(order: Order, confinement: str) -> None:
    """Run the program to its end and report it."""
    if LINUX:
        prctl(SUBREAPER)
    ended: dict[int, int] = {}
    most, kills = order["disk"] + size_of(order["scratch"]), oom_kills()
    pid, failed = start(order, confinement)
    stopped = "" if failed else watch(order, pid, most, ended)
    left = end_all(pid, ended)
    code = ended.get(pid)
    if code == -signal.SIGXFSZ or size_of(order["scratch"]) > most:
        stopped = "disk"
    disk = os.statvfs(order["scratch"])
    report = {
        "confinement": confinement,
        "exit_code": None if failed else code,
        "errno": failed,
        "stopped": stopped,
        "left": 0 if stopped else left,
        "memory": oom_kills() > kills,
        "full": disk.f_bavail * disk.f_frsize < 1 << 20,
    }
    try:
        os.write(order["control"], marshal.dumps(report))
    except OSError:
        pass  # nobody is there to be told


def read_order(control: int) -> Order:
    """Return what to do: eight bytes of length, then a marshalled object."""
    told = b""
    while len(told) < 8 or len(told) < 8 + int.from_bytes(told[:8]):
        chunk = os.read(control, 1 << 16)
        if not chunk:
            sys.exit("nobody asked for anything")
        told += chunk
    return {**marshal.loads(told[8:]), "control": control}  # noqa: S302 - from our own process


def main() -> None:
    """Run what is asked for over the socket."""
    parent, control = os.getppid(), int(sys.argv[1])
    os.set_inheritable(control, False)
    order = read_order(control)
    if not (LINUX and order["namespaces"] and in_namespaces(order)):
        supervise(order, "subreaper" if LINUX else "process group")
    if os.getppid() != parent:  # whoever asked for it was killed, and cannot clear up
        import shutil

        shutil.rmtree(order["scratch"], ignore_errors=True)


if __name__ == "__main__":
    main()
