// Reports when the process gets a signal.
#ifndef COMMPOOL_SRC_ADAPTERS_AUDIT_SIGNAL_WATCH_H_
#define COMMPOOL_SRC_ADAPTERS_AUDIT_SIGNAL_WATCH_H_

namespace commpool::audit {

// Where the program handles the signal itself, that stays so and is said. A thread of its own writes the reports,
// because a handler may interrupt anything.
void ReportOnSignal(int signal);

}  // namespace commpool::audit

#endif  // COMMPOOL_SRC_ADAPTERS_AUDIT_SIGNAL_WATCH_H_
