"""Training runs that faults are done to, on this machine or as jobs of a box: their ranks, what they say, how they end."""
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.environ.get("ADAPTIVE_TRAIN_BUILD", REPOSITORY + "/build/release")
LAUNCHER = BUILD + "/bin/adaptive-train"
LOOK_S = 0.01  # between two looks at what a run says
HANG_S = 60  # a run that says nothing and makes no step for so long hangs


def shell(words, **options):
    """The output of a command that has to succeed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=120, **options)
    return done.stdout.strip()


def write_small_model(folder, lines):
    """The small model and its text, as all tests train it (tests/small_model.bash)."""
    shell(["bash", "-c", f'source {REPOSITORY}/tests/small_model.bash && write_small_model "$@"', "_", folder, *lines])


class Rank:
    """A rank's process, also one in a box: this machine sees the processes of its nodes."""

    def __init__(self, pid):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if not file.read().split(b"\0")[0].endswith(b"/adaptive-train-worker"):
                raise LookupError
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
        variables = {key.decode(): value.decode(errors="replace") for key, value in environment.items()}
        self.pid = pid
        self.folder = variables["ADAPTIVE_TRAIN_RUN_DIR"]
        self.attempt = int(variables.get("ADAPTIVE_TRAIN_ATTEMPT", 0))  # 0: it measures the nodes
        self.number = int(variables["PMIX_RANK"])
        self.node = variables.get("SLURMD_NODENAME", "")
        self.memory_key = variables.get("ADAPTIVE_TRAIN_MEMORY_KEY", "none")

    def alive(self):
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def slots(self):
        """The files of its part of the state, in the shared memory of its node."""
        root = f"/proc/{self.pid}/root/dev/shm/adaptive-train.*.{self.memory_key}"
        return glob.glob(f"{root}/attempt-{self.attempt}-rank-{self.number}-state-*")


def ranks_of(folder):
    """Of the newest attempt of the run in that folder."""
    ranks = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            rank = Rank(int(pid))
        except (OSError, LookupError):
            continue
        if rank.folder == folder and rank.alive():
            ranks.append(rank)
    newest = max((rank.attempt for rank in ranks), default=0)
    return [rank for rank in ranks if rank.attempt == newest]


class Run:
    """A run that has begun. Its words are kept with the times at which they came, and so is how many steps it had."""

    def __init__(self, folder, out):
        self.folder, self.out = folder, out
        self.lines = []  # (time, line)
        self.steps = [(time.time(), 0)]  # (time, steps in metrics.jsonl)
        self.victims = []
        self._counted = (0, 0)  # bytes and lines of metrics.jsonl
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()

    def running(self):
        raise NotImplementedError

    def _look(self):
        read, rest, last = 0, "", False
        while not last:
            last = self._over.wait(LOOK_S)
            try:
                with open(self.out, encoding="utf-8", errors="replace") as file:
                    file.seek(read)
                    rest += file.read()
                    read = file.tell()
                steps = self._steps_so_far()
            except OSError:
                steps = 0
            now = time.time()
            if steps != self.steps[-1][1]:
                self.steps.append((now, steps))
            *whole, rest = rest.split("\n")
            self.lines += [(now, line) for line in whole]

    def _steps_so_far(self):
        """Lines of metrics.jsonl, which only grows but where a run goes on from an earlier step."""
        with open(self.folder + "/metrics.jsonl", "rb") as file:
            if os.fstat(file.fileno()).st_size < self._counted[0]:
                self._counted = (0, 0)
            file.seek(self._counted[0])
            more = file.read()
        self._counted = (self._counted[0] + len(more), self._counted[1] + more.count(b"\n"))
        return self._counted[1]

    def first_line(self, words, since):
        """The time and the match of the first line since then that the words are in."""
        for at, line in list(self.lines):
            found = re.search(words, line) if at >= since else None
            if found:
                return at, found
        return None

    def first_step(self, since):
        """When the next step after that time was reported."""
        of = list(self.steps)
        for (_, before), (at, after) in zip(of, of[1:]):
            if at > since and after > before:
                return at
        return None

    def wait_until(self, happened, patience_s=HANG_S):
        """What `happened` gives once it does, or the run is over. None: it hangs."""
        progress, until = None, 0
        while True:
            result = happened()
            if result or not self.running():
                return result
            if progress != (len(self.lines), len(self.steps)):
                progress, until = (len(self.lines), len(self.steps)), time.time() + patience_s
            if time.time() > until:
                return None
            time.sleep(LOOK_S)

    def ranks(self):
        return ranks_of(self.folder)

    def strike(self, rank, kind):
        """SIGKILL, or SIGSTOP. Gives when, or None where the rank has gone."""
        self.victims.append(rank)
        at = time.time()
        try:
            os.kill(rank.pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        except ProcessLookupError:
            return None
        return at

    def end_watch(self):
        self._over.set()
        self._watch.join()

    def left(self):
        """Ranks that are alive after the end, killed then."""
        until = time.time() + 10
        while self.ranks() and time.time() < until:
            time.sleep(0.1)
        left = [f"rank {rank.number} {rank.node}" for rank in self.ranks()]
        for rank in self.ranks():
            os.kill(rank.pid, signal.SIGKILL)
        return left


def result_of(folder, scratch):
    """What must not differ: each step's loss and norm, and a hash of the parameters at the end."""
    with open(folder + "/metrics.jsonl", encoding="ascii") as file:
        steps = [json.loads(line) for line in file]
    shutil.rmtree(scratch, ignore_errors=True)
    shell([LAUNCHER, "export", folder, "--hf", scratch])
    with open(scratch + "/model.safetensors", "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return [(step["step"], step["loss"], step["grad_norm"]) for step in steps], digest


class LocalRun(Run):
    """A run without Slurm."""

    def __init__(self, work, name, keys):
        self.work = work
        folder, out = f"{work}/{name}", f"{work}/{name}.out"
        with open(out, "w", encoding="ascii") as file:
            self.launcher = subprocess.Popen(
                [LAUNCHER, "run", work + "/config.toml", "--run-dir", folder, "--store", f"file:{work}/{name}.db", *keys],
                stdout=file, stderr=subprocess.STDOUT)
        super().__init__(folder, out)

    def running(self):
        return self.launcher.poll() is None

    def save(self):
        self.launcher.send_signal(signal.SIGUSR1)

    def nodes_to_cut(self):
        return []

    def end(self):
        """The exit code. Kills what still runs."""
        if self.running():
            self.launcher.kill()
        self.end_watch()
        return self.launcher.wait()


class Box:
    """A cluster of four nodes, in a box of its own."""

    def __init__(self):
        self.environment = {**os.environ, "ADAPTIVE_TRAIN_BOX": f"/var/tmp/adaptive-train-box-recovery.{os.getpid()}"}
        self.do("up")
        self.home = re.search("^BOX_HOME=(.*)$", self.do("env"), re.M).group(1)
        write_small_model(self.home, [])
        with open(self.home + "/job.sh", "w", encoding="ascii") as file:
            file.write('#!/bin/bash\nexec adaptive-train run config.toml "$@"\n')
        owner = os.stat(self.home)
        for name in os.listdir(self.home):
            os.chown(f"{self.home}/{name}", owner.st_uid, owner.st_gid)

    def do(self, *words):
        return shell([REPOSITORY + "/tests/box/box", *words], env=self.environment)

    def on_ctl(self, *words):
        return self.do("on", "ctl", "--user", *words)

    def await_nodes(self):
        until = time.time() + 120
        while self.on_ctl("sinfo", "-h", "-N", "-o", "%t").split().count("idle") < 4:
            if time.time() > until:
                states = self.on_ctl("sinfo", "-h", "-N", "-o", "%N %T %E")
                raise TimeoutError("not all nodes are idle within 120 s:\n" + states)
            time.sleep(0.2)

    def down(self):
        self.do("down", "--purge")


class BoxRun(Run):
    """A job of four nodes in a box."""

    MOST_CUT = 2  # of three that the launcher is not on

    def __init__(self, box, keys):
        self.box, self.cut, self._asked = box, [], 0
        box.await_nodes()
        self.job = box.on_ctl("sbatch", "--parsable", "-N4", "--adaptive-train", "job.sh", *keys)
        super().__init__(f"{box.home}/runs/{self.job}", f"{box.home}/slurm-{self.job}.out")

    def _field(self, name):
        shown = self.box.on_ctl("scontrol", "show", "job", "-o", self.job)
        return re.search(rf"\b{name}=(\S+)", shown).group(1)

    def running(self):
        """As Slurm says, asked once a second."""
        if time.time() - self._asked > 1:
            self._state, self._asked = self._field("JobState"), time.time()
        return self._state in ("PENDING", "RUNNING", "CONFIGURING")

    def save(self):
        self.box.on_ctl("scancel", "-s", "USR1", self.job)

    def ranks(self):
        return [rank for rank in super().ranks() if rank.node not in self.cut]

    def nodes_to_cut(self):
        nodes = {rank.node for rank in self.ranks()} - {"n1"}
        return sorted(nodes) if len(self.cut) < self.MOST_CUT else []

    def strike(self, rank, kind):
        if kind != "cut":
            return super().strike(rank, kind)
        self.cut.append(rank.node)
        self.box.do("cut", rank.node)
        # The command takes a tenth of a second; this file says when the cable was out.
        return os.stat(f"{self.box.environment['ADAPTIVE_TRAIN_BOX']}/run/{rank.node}.cut").st_mtime

    def end(self):
        if self.running():
            self.box.on_ctl("scancel", self.job)
        self.end_watch()
        for node in self.cut:
            self.box.do("mend", node)
        return self._field("ExitCode").replace(":", " signal ").removesuffix(" signal 0")
