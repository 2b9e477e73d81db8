"""`commpool share` in one shell, and `commpool import` in another."""

import json
import os
import pathlib
import subprocess
import tempfile

import cli


class Sharing(cli.CommandTest):
    def share(self, *arguments, **variables):
        """Starts it; returns the process and what it prints before it waits."""
        process = subprocess.Popen([cli.CLI, "share", *arguments], env=cli.environment(**variables),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process, [process.stdout.readline().rstrip("\n") for _ in range(2)]

    def end(self, process):
        if not process.stdin.closed:
            process.stdin.close()
        self.assertEqual(process.wait(timeout=60), 0)
        process.stdout.close()

    def test_of_a_pattern_prints_the_command_that_checks_it(self):
        _, (said, command) = self.share("--bytes", "3M")
        self.assertRegex(said, "^3 MiB on device 0. In another shell")
        self.assertEqual(command.split()[:2], ["commpool", "import"])
        self.assertRegex(self.ends(0, *command.split()[1:]).stdout, "^3 MiB, hash [0-9a-f]{16}\n$")

    def test_of_a_file_gives_its_bytes(self):
        source, copy = (pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "file") for _ in range(2))
        source.write_bytes(os.urandom(100001))
        _, (_, command) = self.share("--file", str(source))
        self.ends(0, *command.split()[1:], "--output", str(copy))
        self.assertEqual(copy.read_bytes(), source.read_bytes())

    def test_of_another_device_is_read_by_that_device(self):
        for visible, seen in (("1", "0,1"), ("0", "2,0")):
            _, (_, command) = self.share("--bytes", "64K", CUDA_VISIBLE_DEVICES=visible)
            self.ends(0, *command.split()[1:], CUDA_VISIBLE_DEVICES=seen)

    def test_of_other_bytes_is_a_wrong_result(self):
        _, (_, command) = self.share("--bytes", "64K")
        ticket = command.split()[2]
        result = self.ends(1, "import", ticket, "--bytes", "32K", "--hash", "0123456789abcdef", "--json")
        found = json.loads(result.stdout)
        self.assertEqual((found["bytes"], found["as_asked"]), (32768, False))
        self.refuses(4, "--bytes is larger", "import", ticket, "--bytes", "1G")

    def test_ends_with_its_input_and_the_ticket_with_it(self):
        process, (_, command) = self.share("--bytes", "64K")
        self.end(process)
        self.refuses(4, "its process has ended", *command.split()[1:])

    def test_of_more_than_there_is_says_what_there_is(self):
        self.assertRegex(self.ends(4, "share", "--bytes", "99999T").stderr, "97.7 PiB|99999 TiB")

    def test_refuses_files_that_cannot_be_read_or_written(self):
        self.refuses(4, "cannot read /no/such/file: No such file or directory", "share", "--file", "/no/such/file")
        for file in ("/tmp", "/dev/zero"):
            self.refuses(4, f"cannot read {file}: it is a folder or a device", "share", "--file", file)
        _, (_, command) = self.share("--bytes", "64K")
        self.refuses(4, "cannot write /no/such/file: No such file or directory", *command.split()[1:], "--output",
                     "/no/such/file")
