#include "src/pool/shared/own_state.h"

namespace commpool::internal {

thread_local constinit OwnState own_state;

}  // namespace commpool::internal
