"""Programs under `commpool audit` on the emulator, and what it recorded of them."""

import json
import os
import subprocess
import tempfile

CLI = os.path.abspath("tools/cli/commpool")
_HERE = os.path.abspath("tests/interpose/audit")
PROGRAM, NEXT, ARRAYS, CUPTI, DRIVER = (os.path.join(_HERE, name) for name in (
    "audited_program", "next.so", "stand_in_arrays.so", "stand_in_cupti.so", "stand_in_driver.so"))
MIB = 1 << 20


class Audited:
    """A finished program: its exit code, output, and reports."""

    def __init__(self, command, options=(), launcher=(), emulated=True, preloaded=None, record=None, **variables):
        with tempfile.TemporaryDirectory() as folder:
            self.record = os.path.join(folder, "record.jsonl")
            with open(self.record, "w", encoding="utf-8"):
                pass
            command = [word.replace("RECORD", self.record) for word in command]
            emulate = [CLI, "emulate", "--"] if emulated else []
            # In front of the emulator, which preloads itself.
            preload = ["sh", "-c", 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', preloaded] if preloaded else []
            words = [*launcher, *emulate, *preload, CLI, "audit", "--record", record or self.record, *options, "--",
                     *command]
            done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)
            with open(self.record, encoding="utf-8") as file:
                self.reports = [json.loads(line) for line in file]
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def row(self, library, what, device=0, report=-1):
        rows = self.reports[report]["rows"]
        found = [row for row in rows if (row["library"], row["what"], row["device"]) == (library, what, device)]
        if len(found) != 1:
            raise AssertionError(f"{library}, {what} on {device} stands {len(found)} times in {rows}\n{self.err}")
        return found[0]

    def device(self, number=0, report=-1):
        return next(device for device in self.reports[report]["devices"] if device["device"] == number)


def audit_program(*words, **options):
    return Audited([PROGRAM, *words], **options)
