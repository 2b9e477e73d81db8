"""What holds of every subcommand of a program: wrong values are refused by name, and help shows an example."""

import os
import re

# Any text is the name of a file, or a hash.
_FILES = {"--cupti", "--file", "--hash", "--output", "--record", "--rmm-library", "--torch-library"}
# None of them may be 0 or less.
_COUNTS = {"--iterations", "--rounds", "--schedules", "--operations", "--threads", "--tensors", "--steps",
           "--deadline-ms", "--streams", "--jobs", "--at-once"}
# What comes before the options.
_FIRST_WORDS = {"replay": "no.trace", "import": "no-ticket", "report": "no-recordings"}


class Checks:
    """Mixed into a CommandTest, which says:"""

    commands = ()  # those with options of their own
    only_help = ()  # those without

    def refused_with(self, command, *words):
        first = _FIRST_WORDS.get(command[-1] if command else "")
        return self.ends(4, *command, *([first] if first else []), *words)

    def help_of(self, command):
        return self.ends(0, *command, "--help").stdout

    def options_of(self, command):
        """(option, what its help says that it takes) of each option that takes something."""
        found = re.findall(r"^ +(?:-\w,)?(--[\w-]+) ([^ \n]+)", self.help_of(command), re.MULTILINE)
        return [(name, value) for name, value in found if name not in _FILES]

    def test_wrong_values_of_every_option_are_refused_by_its_name_and_with_the_known_words(self):
        words = 0
        for command in self.commands:
            for option, value in self.options_of(command):
                with self.subTest(command=command, option=option):
                    result = self.refused_with(command, option, "nonsense")
                    self.assertIn(option, result.stderr)
                    self.assertIn("nonsense", result.stderr)
                    known = value.partition("=")[0].split("|") if "|" in value else []  # "cuda|vmm=vmm", a preset
                    words += len(known)
                    for word in known:
                        self.assertIn(word, result.stderr)
        self.assertGreater(words, 10, "options of words are not found any more")

    def test_options_that_count_nothing_are_refused(self):
        for command in self.commands:
            for option in {name for name, _ in self.options_of(command)} & _COUNTS:
                for count in ("0", "-1"):
                    self.assertIn(option, self.refused_with(command, f"{option}={count}").stderr)

    def test_every_subcommand_shows_an_example(self):
        name = os.path.basename(self.program)
        for command in (*self.only_help, *self.commands):
            text = self.help_of(command)
            # Its own: "commpool bench hot ..." in the help of `bench`.
            examples = text[text.index("Example"):].splitlines()[1:]
            self.assertTrue(examples, command)
            for example in examples:
                self.assertIn(" ".join([name, *command]), example)

    def test_help_with_an_unknown_subcommand_is_an_error(self):
        for command in self.only_help:
            if command == ["emulate"]:
                continue  # a program follows
            self.refuses(4, "there is no no-such-thing, the nearest is ", *command, "no-such-thing", "--help")

    def test_choices_are_shown_as_words(self):
        for command in self.commands:
            self.assertNotIn("->", self.help_of(command))
