// What a recording says of its process.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_PROCESS_FACTS_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_PROCESS_FACTS_H_

#include "src/library/recording/entries.h"

namespace commpool::internal::recording {

// All but the limit. The rank is what the launcher says: mpirun, torchrun, srun.
ProcessFacts FactsOfThisProcess();

}  // namespace commpool::internal::recording

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_PROCESS_FACTS_H_
