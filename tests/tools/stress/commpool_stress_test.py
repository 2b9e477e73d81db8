"""The program `commpool_stress` itself: its subcommands, what each refuses, and that it shows how far it is."""

import cli
import subcommands


class EverySubcommand(subcommands.Checks, cli.CommandTest):
    program = cli.STRESS
    commands = (["order"], ["registration"], ["ranks"], ["host"])
    only_help = ([],)

    def test_is_named_with_the_others_where_there_is_no_such(self):
        self.refuses(4, "commpool_stress: say what to do; there are order, registration, ranks, host")
        self.refuses(4, "there is no foo, the nearest is host; there are order, ", "foo")

    def test_says_how_far_it_is_and_clears_the_line(self):
        text = cli.stderr_on_a_terminal("registration", "--schedules", "2", "--ranks", "2", program=cli.STRESS)
        self.assertIn("schedule 1 of 2", text)
        self.assertTrue(text.endswith("\r\033[K"), repr(text))
