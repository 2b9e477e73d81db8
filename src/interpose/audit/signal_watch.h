// Reports when the process gets a signal: one that was asked for, or one that ends it.
#pragma once

namespace commpool::audit {

// From now on there is a report on `signal` (0: on none), and before the process ends by SIGTERM, SIGINT, SIGHUP or
// SIGABRT, as a launcher ends ranks and as an uncaught exception ends a program. It ends by that signal all the same,
// and the thread that got it runs no further; a second one ends it at once. Where the program handles a signal itself,
// that stays so, and for `signal` it is said. A thread of its own writes the reports, because a handler may interrupt
// anything.
void ReportOnSignals(int signal);

}  // namespace commpool::audit
