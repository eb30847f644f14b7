"""Runs an image's file system as Kubernetes does with the security context of deploy/kubernetes, and sends a request to the server.

run-image.py ROOT INSPECTION    ROOT: the mounted image; INSPECTION: the JSON of `buildah inspect --type image`
"""
import json
import os
import subprocess
import sys
import time

root, inspection = sys.argv[1], json.loads(sys.argv[2])
config = inspection["OCIv1"]["config"]
user, group = config["User"].split(":")
environment = [entry for entry in config["Env"] if not entry.startswith("NODE_EXTRA_CA_CERTS")]

def command(*arguments):
    """The command line that runs these arguments in the image."""
    return [
        "unshare", "--mount", "--pid", "--fork", "--net", "--kill-child",
        sys.executable, "-c", CHILD, root, user, group, json.dumps(environment), *arguments,
    ]


# In namespaces of its own for mounts, processes and the network: the root becomes read-only, then all rights are given up.
CHILD = r'''
import ctypes, json, os, subprocess, sys
root, user, group, environment, *arguments = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
def run(*line): subprocess.run(line, check=True)
run("mount", "--make-rprivate", "/")
run("mount", "--bind", root, root)
run("mount", "-t", "proc", "proc", root + "/proc")
run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", root + "/dev")
for device in ("null", "zero", "urandom", "random"):
    open(f"{root}/dev/{device}", "w").close()
    run("mount", "--bind", f"/dev/{device}", f"{root}/dev/{device}")
run("mount", "-o", "remount,bind,ro", root)
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sH", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running
os.chroot(root)
os.chdir("/")
for capability in range(64):
    libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.setgroups([])
os.setresgid(int(group), int(group), int(group))
os.setresuid(int(user), int(user), int(user))
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
os.environ.clear()
for entry in json.loads(environment):
    name, _, value = entry.partition("=")
    os.environ[name] = value
os.execvp(arguments[0], arguments)
'''


def output_of(*arguments):
    result = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300)
    return result.returncode, result.stdout + result.stderr


def check(what, is_right, detail=""):
    print(("ok      " if is_right else "WRONG   ") + what, detail if not is_right else "", flush=True)
    if not is_right:
        sys.exit(1)


entry = config["Entrypoint"]
_, status = output_of("cat", "/proc/self/status")
check("the user is 10001", f"Uid:\t{user}\t{user}" in status and user == "10001", status)
check("there is no capability", "CapEff:\t0000000000000000" in status and "CapBnd:\t0000000000000000" in status, status)
code, text = output_of("touch", "/app/x", "/tmp/x", "/x")
check("nothing can be written", code != 0 and text.count("Read-only file system") == 3, text)

code, text = output_of(*entry, "doctor", "--json")
report = json.loads(text) if code == 0 else {"kernels": []}
check("doctor ends with 0", code == 0, text)
states = {kernel["name"]: kernel["state"] for kernel in report["kernels"]}
check(f"all {len(states)} kernels are prebuilt", len(states) > 3 and set(states.values()) == {"prebuilt"}, str(report["kernels"]))

client = r'''
const { spawn } = require('node:child_process');
const [, ...line] = process.argv;
const server = spawn(line[0], line.slice(1), { stdio: ['ignore', 'inherit', 'inherit'] });
const ended = new Promise((resolve) => server.on('exit', (code, signal) => resolve(`${code} ${signal}`)));
const url = 'http://127.0.0.1:8000';
(async () => {
  for (;;) {
    const answer = await fetch(url + '/health').catch(() => undefined);
    if (answer?.ok) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const body = JSON.stringify({ prompt: 'Once upon a time', max_tokens: 16, temperature: 0 });
  const answer = await fetch(url + '/v1/completions', { method: 'POST', body, headers: { 'content-type': 'application/json' } });
  const { choices } = await answer.json();
  console.log('TEXT ' + JSON.stringify(choices[0].text));
  const probe = spawn(JSON.parse(process.env.HEALTHCHECK)[0], JSON.parse(process.env.HEALTHCHECK).slice(1), { stdio: 'inherit' });
  console.log('HEALTH ' + (await new Promise((resolve) => probe.on('exit', resolve))));
  server.kill('SIGTERM');
  console.log('END ' + (await ended));
})();
'''
health = [line for line in open("Dockerfile") if line.strip().startswith("CMD [") and "fetch" in line][0]
environment.append("HEALTHCHECK=" + health.strip().removeprefix("CMD "))
environment.append("NODE_NO_WARNINGS=1")
code, text = output_of("node", "-e", client, *entry, *config["Cmd"])
check("the server answers a request", 'TEXT "' in text and 'TEXT ""' not in text, text)
check("the image's health check succeeds", "HEALTH 0" in text, text)
check("SIGTERM ends it with 0", "END 0 null" in text, text)

begin = time.monotonic()
server = subprocess.Popen(command(*entry, *config["Cmd"], "--log-format", "json"), stderr=subprocess.PIPE, text=True)
lines = []
for line in server.stderr:
    lines.append(line)
    if "listening" in line.lower() or "8000" in line:
        break
children = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True).stdout.split()
os.kill(int(children[0]), 15)
lines += server.stderr.readlines()
check("as process 1 it ends at SIGTERM", server.wait(timeout=60) in (0, 143), f"{server.returncode} {lines}")
