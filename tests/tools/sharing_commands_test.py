"""`commpool share` in one shell, and `commpool import` in another."""

import json
import os
import subprocess
import tempfile
import unittest

import cli


class Sharing(unittest.TestCase):
    def share(self, *arguments):
        """Starts it; returns the process and what it prints before it waits."""
        environment = {**os.environ, "COMMPOOL_DRIVER": "emulated"}
        process = subprocess.Popen([cli.CLI, "share", *arguments], env=environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
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
        result = cli.run(*command.split()[1:])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, "^3 MiB, hash [0-9a-f]{16}\n$")

    def test_of_a_file_gives_its_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            source, copy = os.path.join(folder, "source"), os.path.join(folder, "copy")
            content = os.urandom(100001)
            with open(source, "wb") as file:
                file.write(content)
            _, (_, command) = self.share("--file", source)
            result = cli.run(*command.split()[1:], "--output", copy)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(copy, "rb") as file:
                self.assertEqual(file.read(), content)

    def test_of_other_bytes_is_a_wrong_result(self):
        _, (_, command) = self.share("--bytes", "64K")
        ticket = command.split()[2]
        result = cli.run("import", ticket, "--bytes", "32K", "--hash", "0123456789abcdef", "--json")
        self.assertEqual(result.returncode, 1, result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual((found["bytes"], found["as_asked"]), (32768, False))
        self.assertIn("--bytes is larger", cli.run("import", ticket, "--bytes", "1G").stderr)

    def test_ends_with_its_input_and_the_ticket_with_it(self):
        process, (_, command) = self.share("--bytes", "64K")
        self.end(process)
        result = cli.run(*command.split()[1:])
        self.assertEqual(result.returncode, 4, result.stdout)
        self.assertIn("its process has ended", result.stderr)

    def test_of_more_than_there_is_says_what_there_is(self):
        result = cli.run("share", "--bytes", "99999T")
        self.assertEqual(result.returncode, 4)
        self.assertRegex(result.stderr, "97.7 PiB|99999 TiB")

    def test_refuses_files_that_cannot_be_read_or_written(self):
        result = cli.run("share", "--file", "/no/such/file")
        self.assertEqual(result.returncode, 4)
        self.assertIn("cannot read /no/such/file: No such file or directory", result.stderr)
        for file in ("/tmp", "/dev/zero"):
            self.assertIn(f"cannot read {file}: it is a folder or a device", cli.run("share", "--file", file).stderr)
        _, (_, command) = self.share("--bytes", "64K")
        result = cli.run(*command.split()[1:], "--output", "/no/such/file")
        self.assertEqual(result.returncode, 4)
        self.assertIn("cannot write /no/such/file: No such file or directory", result.stderr)


if __name__ == "__main__":
    unittest.main()
