#include "src/library/pool/shared/own_state.h"

namespace commpool::internal {

// Constant initialisation: a read needs no check whether the thread has made it.
thread_local constinit OwnState own_state;

}  // namespace commpool::internal
